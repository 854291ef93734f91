/** kube-score, built once from its Go module (hack/kube-score/go.sum pins it) into the cache folder: half a minute. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { join, resolve } from "node:path";
import { cacheFolder, type Say } from "./cache.ts";

const sources = resolve(import.meta.dirname, "kube-score");
const PACKAGE = "github.com/zegl/kube-score/cmd/kube-score";
const BUILD_TIMEOUT_MS = 280_000;

/** Path of the program. null: not built yet, and there is no Go to build it. @throws when the build fails. */
export async function kubeScore(say: Say): Promise<string | null> {
  const digest = createHash("sha256").update(await fs.readFile(join(sources, "go.sum")));
  const path = join(await cacheFolder(), `kube-score-${digest.digest("hex").slice(0, 16)}`);
  if ((await fs.stat(path).catch(() => null)) !== null) return path;
  if (spawnSync("go", ["version"]).status !== 0) return null;
  say("building kube-score from its Go module (once)");
  const draft = `${path}.${process.pid}`;
  const { status, stderr, error } = spawnSync("go", ["build", "-trimpath", "-o", draft, PACKAGE], {
    cwd: sources,
    env: { ...process.env, CGO_ENABLED: "0", GOFLAGS: "-mod=readonly" },
    encoding: "utf8",
    timeout: BUILD_TIMEOUT_MS,
  });
  if (status !== 0) throw new Error(`go build of kube-score: ${error?.message ?? stderr.slice(-2000)}`);
  await fs.rename(draft, path);
  return path;
}
