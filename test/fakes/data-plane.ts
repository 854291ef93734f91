/** A real data plane in a process of its own, over real stores, for tests that hurt it. */
import { spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ALLOCATOR, NODE_FLAGS } from "../../hack/node-flags.ts";
import { freePort } from "../../hack/free-port.ts";
import { hasEnded, stopProcess } from "../../hack/processes.ts";
import { watchForSurprises } from "./surprises.ts";
import { programEnvironment } from "./program-environment.ts";

const root = resolve(import.meta.dirname, "../..");
const READY_WITHIN_MS = 60_000;
const STOPPED_WITHIN_MS = 20_000;

export interface Stores {
  readonly redisUrl: string;
  readonly postgresUrl: string;
}

export interface DataPlaneOptions {
  readonly stores: Stores;
  /** Folder of its snapshot. */
  readonly snapshot: string;
  /** Arguments of Node's own. */
  readonly node?: readonly string[];
  /** Where it listens; absent: where there is room. */
  readonly ports?: readonly [port: number, opsPort: number];
  /** Beside what every data plane here gets. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Hears of what escaped in it; default: fails the run of tests. */
  readonly surprised?: (error: Error) => void;
}

export class DataPlane {
  readonly process: ChildProcess;
  readonly port: number;
  readonly opsPort: number;

  private constructor(child: ChildProcess, port: number, opsPort: number) {
    this.process = child;
    this.port = port;
    this.opsPort = opsPort;
  }

  /** Starts it; `ready` waits until it serves. */
  static async spawn({
    stores,
    snapshot,
    node = [],
    ports,
    environment = {},
    surprised,
  }: DataPlaneOptions): Promise<DataPlane> {
    const [port, opsPort] = ports ?? [await freePort(), await freePort()];
    const child = spawn(process.execPath, [...NODE_FLAGS, ...node, "dataplane/main.ts"], {
      cwd: root,
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        ...programEnvironment(),
        ...ALLOCATOR,
        HOST: "127.0.0.1",
        PORT: String(port),
        OPS_PORT: String(opsPort),
        DATABASE_URL: stores.postgresUrl,
        REDIS_URL: stores.redisUrl,
        GAPURA_CONFIG_DIR: snapshot,
        GAPURA_SEAL_KEYS: `k1:${Buffer.alloc(32, 1).toString("base64")}`,
        LOG_LEVEL: "fatal",
        DRAIN_TIMEOUT: "10",
        ...environment,
      },
    });
    watchForSurprises(child, "a data plane", surprised);
    child.stderr.pipe(process.stderr, { end: false });
    return new DataPlane(child, port, opsPort);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get alive(): boolean {
    return !hasEnded(this.process);
  }

  /** What `/readyz` says; null when nobody answers. */
  async readiness(): Promise<{ readonly ok: boolean; readonly text: string } | null> {
    try {
      const signal = AbortSignal.timeout(2_000);
      const answer = await fetch(`http://127.0.0.1:${this.opsPort}/readyz`, { signal });
      return { ok: answer.ok, text: await answer.text() };
    } catch {
      return null;
    }
  }

  /** @throws Error when it ends before, or takes too long. */
  async ready(): Promise<void> {
    const deadline = performance.now() + READY_WITHIN_MS;
    for (;;) {
      const said = await this.readiness();
      if (said?.ok === true) return;
      if (!this.alive) throw new Error("the data plane has ended");
      if (performance.now() > deadline)
        throw new Error(`the data plane does not get ready: ${said?.text ?? "it does not answer"}`);
      await sleep(20);
    }
  }

  /** Its resident memory in MB, now. Its children count by themselves. */
  residentMb(): number {
    const status = readFileSync(`/proc/${this.process.pid}/status`, "utf8");
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? Number.NaN) / 1024;
  }

  /** What its main thread has had so far of a core, and how long that stood ready without one. */
  mainThread(): { readonly cpuMs: number; readonly waitMs: number } {
    const { pid } = this.process;
    const [cpu = "", wait = ""] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, "utf8").split(" ");
    return { cpuMs: Number(cpu) / 1e6, waitMs: Number(wait) / 1e6 };
  }

  stop(signal: NodeJS.Signals): Promise<void> {
    return stopProcess(this.process, signal, STOPPED_WITHIN_MS);
  }
}
