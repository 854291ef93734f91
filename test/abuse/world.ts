/**
 * What the abuse runs against: one real data plane in a process of its own with a small heap and a small budget of
 * bodies, stores of its own, an upstream that takes whatever comes, and three organizations: one with credit and one
 * without, whose keys the attacks use, and their neighbour.
 */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { stopProcess } from "../../hack/processes.ts";
import { endWithUs } from "../../hack/reaper.ts";
import { DataPlane, type Stores } from "../fakes/data-plane.ts";
import {
  slotFiles,
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

/** What the data plane gets, as a container would give it. */
const HEAP_MB = 512;
const BODY_BUDGET_MB = 256;
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

export class AbuseWorld implements AsyncDisposable {
  readonly #plane: DataPlane;
  readonly #neighbour: ChildProcess;
  readonly #stops: (() => Promise<void> | void)[];

  private constructor(plane: DataPlane, neighbour: ChildProcess, stops: (() => Promise<void> | void)[]) {
    this.#plane = plane;
    this.#neighbour = neighbour;
    this.#stops = stops;
  }

  get port(): number {
    return this.#plane.port;
  }

  get opsPort(): number {
    return this.#plane.opsPort;
  }

  static async open(stores: Stores): Promise<AbuseWorld> {
    const folder = mkdtempSync(join(tmpdir(), "gapura-abuse-"));
    const stops: (() => Promise<void> | void)[] = [() => rmSync(folder, { recursive: true, force: true })];
    try {
      const sink = await startSink();
      stops.push(() => sink.close());
      const neighbour = fork(join(import.meta.dirname, "neighbour.ts"));
      endWithUs(neighbour, "SIGTERM");
      stops.push(() => stopProcess(neighbour, "SIGTERM", 5_000));
      // The neighbour brings an upstream of its own, which no attack can keep busy.
      const [own] = (await once(neighbour, "message")) as [string];
      // So has who streams without end: what his writing costs is no cost of the gateway's.
      const flood = fork(join(import.meta.dirname, "../fakes/large/flood.ts"));
      endWithUs(flood, "SIGTERM");
      stops.push(() => stopProcess(flood, "SIGTERM", 5_000));
      const [flooding] = (await once(flood, "message")) as [string];
      await writeFiles(join(folder, "snapshot"), slotFiles("a", routing(sink.url, own, flooding)));
      const plane = await DataPlane.spawn({
        stores,
        snapshot: join(folder, "snapshot"),
        node: [`--max-old-space-size=${HEAP_MB}`],
        environment: { NODE_ENV: "production", BODY_BUDGET: `${BODY_BUDGET_MB}Mi`, DRAIN_TIMEOUT: "2" },
      });
      stops.push(() => plane.stop("SIGTERM"));
      await plane.ready();
      neighbour.send({ port: plane.port, key: keys.neighbour, model: "m-neighbour" } satisfies Start);
      return new AbuseWorld(plane, neighbour, stops);
    } catch (error) {
      for (const stop of stops.reverse()) await stop();
      throw error;
    }
  }

  /** False: the data plane has ended. */
  get alive(): boolean {
    return this.#plane.alive;
  }

  /** What the neighbour has seen since it was last asked. */
  async neighbour(): Promise<NeighbourReport> {
    this.#neighbour.send("report");
    const [report] = (await once(this.#neighbour, "message")) as [NeighbourReport];
    return report;
  }

  /** Resident memory of the data plane in MB, now. Its page children count by themselves. */
  residentMb(): number {
    return this.#plane.residentMb();
  }

  /** What the data plane's main thread has had so far of a core, and how long it stood ready without one. */
  mainThread(): { readonly cpuMs: number; readonly waitMs: number } {
    return this.#plane.mainThread();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const stop of this.#stops.reverse()) await stop();
  }
}

/** What the flooding upstream sends without end (`flood.ts`). */
const floods = ["deltas", "line-feeds", "tiny-chunks", "large-events", "wide-events"];
export const floodModel = (kind: string, dialect: Dialect) => `m-${kind}-${dialect}`;

/** A model for each dialect of upstreams: what clients of another dialect send is converted. */
function routing(upstream: string, ofNeighbour: string, flood: string) {
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
      ...floods.flatMap((kind) =>
        dialects.map((dialect) =>
          sampleRoute(floodModel(kind, dialect), {
            upstreams: [sampleUpstream({ dialect, url: `${flood}/${kind}${dialectPath[dialect]}` })],
            toolPolicy: "tools",
          }),
        ),
      ),
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
