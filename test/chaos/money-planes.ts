/** Real data-plane processes over real stores and a scripted upstream, for tests that kill them. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { expect } from "vitest";
import { z } from "zod";
import { audit } from "../../dataplane/billing/audit.ts";
import { hasEnded, stopProcess } from "../../hack/processes.ts";
import { freePort } from "../../hack/postgres.ts";
import {
  bankFiles,
  sampleKeys,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleUpstream,
  sha256,
  writeFiles,
} from "../fakes/sample-snapshot.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { Plane } from "../integration/money-world.ts";

const root = resolve(import.meta.dirname, "../..");
const START_MS = 30_000;

export interface Stores {
  readonly redisUrl: string;
  readonly postgresUrl: string;
}

/** One data plane in a process of its own. */
export interface DataPlane {
  readonly url: string;
  readonly process: ChildProcess;
  stop(signal: NodeJS.Signals): Promise<void>;
}

/** What a client saw of one request. The marker is also its output tokens, so that a usage row can be told by it. */
export interface Seen {
  readonly marker: number;
  readonly complete: boolean;
}

export class World {
  readonly #stores: Stores;
  readonly #folder: string;
  readonly upstream: FakeUpstream;
  readonly #planes = new Set<DataPlane>();
  readonly seen: Seen[] = [];
  /** How long the upstream thinks before it answers. */
  thinkMs = 0;
  #markers = 0;

  private constructor(stores: Stores, folder: string, upstream: FakeUpstream) {
    this.#stores = stores;
    this.#folder = folder;
    this.upstream = upstream;
  }

  static async open(stores: Stores): Promise<World> {
    const folder = await mkdtemp(join(tmpdir(), "gapura-money-"));
    const upstream: FakeUpstream = await startUpstream({
      fallback: ({ question }) => ({
        answer: {
          parts: [{ type: "text", text: "one two three" }],
          usage: { input: 1, output: Number(question) },
        },
        faults: { delayBetweenEventsMs: 5, delayHeadersMs: world.thinkMs },
      }),
    });
    const route = (model: string, dialect: "messages" | "chat", path: string) =>
      sampleRoute(model, { upstreams: [sampleUpstream({ dialect, url: `${upstream.url}${path}` })] });
    const routing = sampleRouting(1, {
      routes: [route("m", "messages", "/v1/messages"), route("c", "chat", "/v1/chat/completions")],
      organizations: [
        sampleOrganization("org_acme", {
          grants: [{ name: "start", amountMicros: "1000000000000" }],
          apiKeys: [
            {
              name: "ci",
              sha256: sha256(sampleKeys.inference),
              hint: "sk-svc-a",
              project: "default",
            },
          ],
        }),
      ],
    });
    await writeFiles(folder, bankFiles("a", routing));
    const world = new World(stores, folder, upstream);
    return world;
  }

  /** @param dieAt `step:N` of billing/steps.ts. */
  async start(dieAt?: string): Promise<DataPlane> {
    const [port, opsPort] = [await freePort(), await freePort()];
    const child = spawn(
      process.execPath,
      ["--import", join(import.meta.dirname, "die-at.ts"), "dataplane/main.ts"],
      {
        cwd: root,
        stdio: ["ignore", "ignore", "inherit"],
        env: {
          PATH: process.env["PATH"],
          HOST: "127.0.0.1",
          PORT: String(port),
          OPS_PORT: String(opsPort),
          DATABASE_URL: this.#stores.postgresUrl,
          REDIS_URL: this.#stores.redisUrl,
          GAPURA_CONFIG_DIR: this.#folder,
          GAPURA_SEAL_KEYS: `k1:${Buffer.alloc(32, 1).toString("base64")}`,
          LOG_LEVEL: "silent",
          DRAIN_TIMEOUT: "10",
          ...(dieAt === undefined ? {} : { GAPURA_TEST_DIE_AT: dieAt }),
        },
      },
    );
    const plane: DataPlane = {
      url: `http://127.0.0.1:${port}`,
      process: child,
      stop: async (signal) => {
        await stopProcess(child, signal, 20_000);
        this.#planes.delete(plane);
      },
    };
    this.#planes.add(plane);
    const deadline = Date.now() + START_MS;
    const ready = async () =>
      (await fetch(`http://127.0.0.1:${opsPort}/readyz`).catch(() => null))?.ok === true;
    while (!(await ready())) {
      // It may meet its step while it starts: the charges of one that died before it are waiting.
      if (hasEnded(child) && dieAt !== undefined) break;
      if (hasEnded(child)) throw new Error(`the data plane ended (${child.exitCode ?? child.signalCode})`);
      if (Date.now() > deadline) throw new Error("the data plane does not get ready");
      await sleep(20);
    }
    return plane;
  }

  /** One request, whole or streamed, in one of two dialects; what became of it is remembered. */
  async ask({ url }: Pick<DataPlane, "url">): Promise<Seen> {
    this.#markers += 1;
    const marker = this.#markers;
    const [stream, messages] = [marker % 2 === 0, marker % 4 < 2];
    const complete = await this.#exchange(url, marker, stream, messages).catch(() => false);
    const seen = { marker, complete };
    this.seen.push(seen);
    return seen;
  }

  async #exchange(url: string, marker: number, stream: boolean, messages: boolean): Promise<boolean> {
    const response = await fetch(`${url}${messages ? "/v1/messages" : "/v1/chat/completions"}`, {
      method: "POST",
      headers: { "x-api-key": sampleKeys.inference, "content-type": "application/json" },
      body: JSON.stringify({
        model: messages ? "m" : "c",
        max_tokens: 5_000,
        stream,
        messages: [{ role: "user", content: String(marker) }],
      }),
      signal: AbortSignal.timeout(20_000),
    });
    const text = await response.text();
    if (response.status !== 200) return false;
    if (stream) return text.includes(messages ? "event: message_stop" : "data: [DONE]");
    const answer: unknown = JSON.parse(text);
    return typeof answer === "object" && answer !== null && "usage" in answer;
  }

  /** Requests until `stopped`, `width` at a time, in turn over the planes that are there. */
  async load(
    planes: () => readonly Pick<DataPlane, "url">[],
    width: number,
    stopped: AbortSignal,
  ): Promise<void> {
    const worker = async (offset: number) => {
      for (let turn = offset; !stopped.aborted; turn += 1) {
        const now = planes();
        const plane = now[turn % Math.max(1, now.length)];
        if (plane === undefined || !(await this.ask(plane)).complete) await sleep(50);
      }
    };
    await Promise.all(Array.from({ length: width }, (_, index) => worker(index)));
  }

  /** Ends what is dead and compares what clients saw, what the upstream served and what the ledger says. */
  async judge(): Promise<void> {
    for (const plane of this.#planes) if (!hasEnded(plane.process)) await plane.stop("SIGTERM");
    // The sweeper of another data plane, which takes every hold for a dead owner's: they all are.
    const sweeper = await Plane.open(this.#stores, { running: false, rhythm: { staleMs: -1 } });
    try {
      await sweeper.upkeep.sweep();
      await sweeper.upkeep.drain();
      await sweeper.holds.refresh(["org_acme"]);
      const rows = await sweeper.pool.any(
        sql.type(z.object({ marker: z.bigint(), cost: z.bigint(), provisional: z.boolean() }))`
          select output_tokens as marker, cost_micros as cost, provisional from usage where not estimated
        `,
      );
      const charged = rows.map(({ marker }) => Number(marker)).sort((one, other) => one - other);
      const served = new Set(this.upstream.requests.map(({ text }) => markerOf(text)));
      expect(new Set(charged).size, "no request is charged twice").toBe(charged.length);
      expect(charged.filter((marker) => !served.has(marker))).toEqual([]);
      const complete = this.seen.filter((one) => one.complete).map(({ marker }) => marker);
      expect(complete.filter((marker) => !charged.includes(marker))).toEqual([]);
      for (const { marker, cost } of rows) expect(cost).toBe(96n + 480n * marker);
      const report = await audit(sweeper.pool, sweeper.redis);
      expect(report.broken).toEqual([]);
      expect(report.holds).toBe(0);
    } finally {
      await sweeper.close();
    }
  }

  async close(): Promise<void> {
    for (const plane of this.#planes) await stopProcess(plane.process, "SIGKILL", 5_000);
    await this.upstream.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

const markerOf = (body: string): number => Number(/"content":"(\d+)"/.exec(body)?.[1]);
