/**
 * A real kube-apiserver and etcd for tests, built once from their Go modules (hack/kube-apiserver/) into the cache
 * folder: about 5 minutes and 300 MB of downloads on two cores, and a second afterwards.
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { cacheFolder, type Say } from "./cache.ts";

const sources = resolve(import.meta.dirname, "kube-apiserver");
const PROGRAMS = ["etcd", "kube-apiserver"] as const;
const MODULE_FILES = ["go.mod", "go.sum", "main.go"] as const;
const VERSION = { git: "v1.35.4", major: "1", minor: "35" };

export interface KubeBinaries {
  readonly etcd: string;
  readonly apiServer: string;
}

/** null: not built yet, and there is no Go to build them. @throws when the build fails. */
export async function kubeBinaries(say: Say): Promise<KubeBinaries | null> {
  const folder = join(await cacheFolder(), `kube-apiserver-${await digestOfSources()}`);
  const binaries = { etcd: join(folder, "etcd"), apiServer: join(folder, "kube-apiserver") };
  if (await isThere(folder)) return binaries;
  if (spawnSync("go", ["version"]).status !== 0) return null;
  await alone(`${folder}.lock`, async () => {
    if (await isThere(folder)) return;
    const draft = await fs.mkdtemp(`${folder}.draft-`);
    try {
      for (const program of PROGRAMS) await build(program, join(draft, program), say);
      await fs.rename(draft, folder);
    } catch (error) {
      await fs.rm(draft, { recursive: true, force: true });
      throw error;
    }
  });
  return binaries;
}

async function digestOfSources(): Promise<string> {
  const hash = createHash("sha256").update(JSON.stringify(VERSION));
  for (const program of PROGRAMS)
    for (const file of MODULE_FILES) hash.update(await fs.readFile(join(sources, program, file)));
  return hash.digest("hex").slice(0, 16);
}

const isThere = (path: string): Promise<boolean> =>
  fs.stat(path).then(
    () => true,
    () => false,
  );

const PROGRESS_MS = 5000;

/** Builds one program and reports progress every few seconds. */
async function build(program: string, target: string, say: Say): Promise<void> {
  const version = Object.entries({
    gitVersion: VERSION.git,
    gitMajor: VERSION.major,
    gitMinor: VERSION.minor,
  });
  const flags = [
    "-s",
    "-w",
    ...version.map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`),
  ];
  say(`building ${program} from its Go module (once, up to 5 minutes)`);
  // -v names each package as it is compiled: progress, and no -mod=mod so that go.sum decides.
  const child = spawn("go", ["build", "-v", "-trimpath", "-ldflags", flags.join(" "), "-o", target, "."], {
    cwd: join(sources, program),
    env: { ...process.env, CGO_ENABLED: "0", GOFLAGS: "-mod=readonly" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const last: string[] = [];
  let lines = 0;
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    const added = text.split("\n").filter((line) => line !== "");
    lines += added.length;
    last.push(...added);
    last.splice(0, last.length - 20);
  });
  const timer = setInterval(() => say(`${program}: ${lines} modules and packages done`), PROGRESS_MS);
  const code = await new Promise<number | null>((done, failed) => {
    child.on("error", failed);
    child.on("close", done);
  }).finally(() => clearInterval(timer));
  if (code !== 0) throw new Error(`go build of ${program} failed (exit ${code}):\n${last.join("\n")}`);
}

/** How often the holder of the lock shows that it lives. */
const HEARTBEAT_MS = 5000;
const STALE_MS = 60_000;

async function alone(lock: string, work: () => Promise<void>): Promise<void> {
  while (!(await take(lock))) await sleep(1000);
  const heartbeat = setInterval(
    () => void fs.utimes(lock, new Date(), new Date()).catch(() => {}),
    HEARTBEAT_MS,
  );
  try {
    await work();
  } finally {
    clearInterval(heartbeat);
    await fs.rm(lock, { recursive: true, force: true });
  }
}

async function take(lock: string): Promise<boolean> {
  try {
    await fs.mkdir(lock);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  const info = await fs.stat(lock).catch(() => null);
  if (info !== null && Date.now() - info.mtimeMs > STALE_MS)
    await fs.rm(lock, { recursive: true, force: true });
  return false;
}

if (import.meta.main) {
  const found = await kubeBinaries((line) => console.log(line));
  console.log(found === null ? "there is no Go on this machine" : `${found.etcd}\n${found.apiServer}`);
}
