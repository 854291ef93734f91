/**
 * What the abuse runs against: one real data plane in a process of its own with a small heap and a small budget of
 * bodies, stores of its own, an upstream that takes whatever comes, and three organizations: one with credit and one
 * without, whose keys the attacks use, and their neighbour.
 */
import { fork, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { dialectPath, dialects } from "../../dataplane/dialects/dialect.ts";
import { freePort } from "../../hack/postgres.ts";
import { hasEnded, stopProcess } from "../../hack/processes.ts";
import { waitFor } from "../bench/wait-for.ts";
import {
  bankFiles,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSource,
  sampleUpstream,
  sha256,
  writeFiles,
} from "../fakes/sample-snapshot.ts";
import type { NeighbourReport, Start } from "./neighbour.ts";
import { startSink } from "./sink.ts";

const root = resolve(import.meta.dirname, "../..");

/** What the data plane gets, as a container would give it. */
export const HEAP_MB = 512;
export const BODY_BUDGET_MB = 256;
/**
 * Its resident memory at most: heap, budget, what decoding, parsing and sending hold beside the bytes that are counted,
 * and the page children's and workers' own.
 */
export const MEMORY_LIMIT_MB = 1_600;

export const keys = {
  rich: `sk-svc-${"r".repeat(40)}`,
  poor: `sk-svc-${"p".repeat(40)}`,
  neighbour: `sk-svc-${"n".repeat(40)}`,
} as const;

export interface Stores {
  readonly postgresUrl: string;
  readonly redisUrl: string;
}

export class AbuseWorld implements AsyncDisposable {
  readonly port: number;
  readonly opsPort: number;
  readonly #plane: ChildProcess;
  readonly #neighbour: ChildProcess;
  readonly #stops: (() => Promise<void> | void)[];

  private constructor(
    ports: { readonly port: number; readonly opsPort: number },
    plane: ChildProcess,
    neighbour: ChildProcess,
    stops: (() => Promise<void> | void)[],
  ) {
    this.port = ports.port;
    this.opsPort = ports.opsPort;
    this.#plane = plane;
    this.#neighbour = neighbour;
    this.#stops = stops;
  }

  static async open(stores: Stores): Promise<AbuseWorld> {
    const folder = mkdtempSync(join(tmpdir(), "gapura-abuse-"));
    const stops: (() => Promise<void> | void)[] = [() => rmSync(folder, { recursive: true, force: true })];
    try {
      const sink = await startSink();
      stops.push(() => sink.close());
      const neighbour = fork(join(import.meta.dirname, "neighbour.ts"));
      stops.push(() => stopProcess(neighbour, "SIGTERM", 5_000));
      // The neighbour brings an upstream of its own, which no attack can keep busy.
      const [own] = (await once(neighbour, "message")) as [string];
      await writeFiles(join(folder, "snapshot"), bankFiles("a", routing(sink.url, own)));
      const ports = { port: await freePort(), opsPort: await freePort() };
      const plane = startPlane(folder, ports, stores);
      stops.push(() => stopProcess(plane, "SIGTERM", 20_000));
      await waitFor("the data plane", async () => {
        if (hasEnded(plane)) throw new Error("it has ended");
        return (await fetch(`http://127.0.0.1:${ports.opsPort}/readyz`)).ok;
      });
      neighbour.send({ port: ports.port, key: keys.neighbour, model: "m-neighbour" } satisfies Start);
      return new AbuseWorld(ports, plane, neighbour, stops);
    } catch (error) {
      for (const stop of stops.reverse()) await stop();
      throw error;
    }
  }

  /** False: the data plane has ended. */
  get alive(): boolean {
    return !hasEnded(this.#plane);
  }

  /** What the neighbour has seen since it was last asked. */
  async neighbour(): Promise<NeighbourReport> {
    this.#neighbour.send("report");
    const [report] = (await once(this.#neighbour, "message")) as [NeighbourReport];
    return report;
  }

  /** Resident memory of the data plane in MB, now. Its page children count by themselves. */
  residentMb(): number {
    const status = readFileSync(`/proc/${this.#plane.pid}/status`, "utf8");
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? Number.NaN) / 1024;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const stop of this.#stops.reverse()) await stop();
  }
}

function startPlane(
  folder: string,
  { port, opsPort }: { readonly port: number; readonly opsPort: number },
  stores: Stores,
): ChildProcess {
  const log = openSync(join(folder, "log"), "a");
  const plane = spawn(process.execPath, [`--max-old-space-size=${HEAP_MB}`, "dataplane/main.ts"], {
    cwd: root,
    stdio: ["ignore", log, log],
    env: {
      PATH: process.env["PATH"],
      NODE_ENV: "production",
      HOST: "127.0.0.1",
      PORT: String(port),
      OPS_PORT: String(opsPort),
      DATABASE_URL: stores.postgresUrl,
      REDIS_URL: stores.redisUrl,
      GAPURA_CONFIG_DIR: join(folder, "snapshot"),
      GAPURA_SEAL_KEYS: `k1:${Buffer.alloc(32, 1).toString("base64")}`,
      BODY_BUDGET: `${BODY_BUDGET_MB}Mi`,
      LOG_LEVEL: "warn",
      DRAIN_TIMEOUT: "2",
    },
  });
  closeSync(log);
  plane.once("exit", (code, signal) => {
    if (code !== 0) process.stderr.write(`${readFileSync(join(folder, "log"), "utf8").slice(-4_000)}\n`);
    if (signal !== null) process.stderr.write(`the data plane was ended by ${signal}\n`);
  });
  return plane;
}

/** A model for each dialect of upstreams: what clients of another dialect send is converted. */
function routing(upstream: string, ofNeighbour: string) {
  const declared = (value: string) => ({
    name: "ci",
    sha256: sha256(value),
    hint: value.slice(0, 14),
    project: "default",
  });
  const grants = [{ name: "start", amountMicros: "1000000000000000" }];
  return sampleRouting(1, {
    routes: [
      ...dialects.map((dialect) =>
        sampleRoute(`m-${dialect}`, {
          upstreams: [sampleUpstream({ dialect, url: upstream + dialectPath[dialect] })],
        }),
      ),
      sampleRoute("m-neighbour", {
        upstreams: [sampleUpstream({ url: ofNeighbour + dialectPath.messages })],
      }),
      sampleRoute("m-tools", {
        upstreams: [sampleUpstream({ url: upstream + dialectPath.messages })],
        toolPolicy: "tools",
      }),
    ],
    policies: {
      tools: {
        source: sampleSource("ToolPolicy", "tools"),
        webSearch: null,
        webFetch: {
          timeoutMs: 5_000,
          maxBytes: 10 * 1024 * 1024,
          cacheTtlMs: 0,
          allowCidrs: [],
          allowPorts: [],
          proxy: null,
        },
        xSearch: null,
        callsPerMinute: 60,
        iterations: 8,
        parallelCalls: 4,
      },
    },
    organizations: [
      sampleOrganization("org_rich", { grants, apiKeys: [declared(keys.rich)] }),
      sampleOrganization("org_poor", { grants: [], apiKeys: [declared(keys.poor)] }),
      sampleOrganization("org_neighbour", { grants, apiKeys: [declared(keys.neighbour)] }),
    ],
  });
}
