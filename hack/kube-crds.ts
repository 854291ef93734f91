/**
 * The definitions of other projects' kinds that the chart may render (HTTPRoute, ServiceMonitor, PrometheusRule), as published:
 * read from those projects' Go modules, which hack/kube-crds/go.sum pins, and kept in the cache.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { z } from "zod";
import { cacheFolder, type Say } from "./cache.ts";

const sources = resolve(import.meta.dirname, "kube-crds");
const MONITORING = "example/prometheus-operator-crd/monitoring.coreos.com_";
const MODULES = [
  {
    module: "github.com/prometheus-operator/prometheus-operator@v0.85.0",
    files: [`${MONITORING}servicemonitors.yaml`, `${MONITORING}prometheusrules.yaml`],
  },
  {
    module: "sigs.k8s.io/gateway-api@v1.4.1",
    files: ["config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"],
  },
] as const;
const DOWNLOAD_TIMEOUT_MS = 180_000;

const downloadSchema = z.object({ Dir: z.string().optional(), Error: z.string().optional() });

/** Paths of the YAML files. @throws Error when they are not in the cache and cannot be downloaded (10 MB, once). */
export async function kubeCrds(say: Say): Promise<string[]> {
  const digest = createHash("sha256")
    .update(JSON.stringify(MODULES))
    .update(await fs.readFile(join(sources, "go.sum")));
  const folder = join(await cacheFolder(), `kube-crds-${digest.digest("hex").slice(0, 16)}`);
  const names = MODULES.flatMap(({ files }) => files.map((file) => basename(file)));
  const paths = names.map((name) => join(folder, name));
  if (await areThere(paths)) return paths;
  const draft = await fs.mkdtemp(`${folder}.draft-`);
  try {
    for (const { module, files } of MODULES) {
      say(`downloading ${module} for its definitions`);
      const tree = download(module);
      for (const file of files) await fs.copyFile(join(tree, file), join(draft, basename(file)));
    }
    await fs.rename(draft, folder).catch(async (error: unknown) => {
      // Another process was faster.
      if (!(await areThere(paths))) throw error;
    });
  } finally {
    await fs.rm(draft, { recursive: true, force: true });
  }
  return paths;
}

/** @returns the unpacked module's folder. */
function download(module: string): string {
  const { stdout, error } = spawnSync("go", ["mod", "download", "-json", module], {
    cwd: sources,
    env: { ...process.env, GOFLAGS: "-mod=readonly" },
    encoding: "utf8",
    timeout: DOWNLOAD_TIMEOUT_MS,
  });
  if (error !== undefined) throw new Error(`go mod download ${module}: ${error.message}`, { cause: error });
  const answer = downloadSchema.parse(JSON.parse(stdout));
  if (answer.Dir === undefined || answer.Error !== undefined)
    throw new Error(`go mod download ${module}: ${answer.Error ?? "nothing was downloaded"}`);
  return answer.Dir;
}

async function areThere(paths: readonly string[]): Promise<boolean> {
  const found = await Promise.all(paths.map((path) => fs.stat(path).catch(() => null)));
  return found.every((info) => info !== null);
}
