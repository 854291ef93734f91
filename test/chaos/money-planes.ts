/** Real data-plane processes over real stores and a scripted upstream, for tests that kill them. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { sql, type CommonQueryMethods } from "slonik";
import { expect } from "vitest";
import { z } from "zod";
import { creditsText } from "../../dataplane/billing/credits.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import type { OrganizationEntry, Policy, Routing } from "../../dataplane/config/schema.ts";
import { DataPlane, type Stores } from "../fakes/data-plane.ts";
import { searxng } from "../fakes/engines/engines.ts";
import { FakeSite } from "../fakes/pages/site.ts";
import {
  slotFiles,
  sampleKeys,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSource,
  sampleUpstream,
  sha256,
  writeFiles,
} from "../fakes/sample-snapshot.ts";
import type { ReadRequest } from "../fakes/upstream/read-request.ts";
import type { Faults, Step } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { Plane } from "../integration/money-world.ts";

const preloaded = ["die-at.ts", "time-passes.ts"].flatMap((name) => [
  "--import",
  join(import.meta.dirname, name),
]);

/** What a client saw of one request. */
export interface Seen {
  readonly marker: number;
  /** null: the connection broke. */
  readonly status: number | null;
  readonly complete: boolean;
  /** Output tokens that a complete answer named; null where its dialect does not say. */
  readonly output: number | null;
}

/** `tools`: the model searches once, so its answer takes two iterations. */
export type Kind = "messages" | "chat" | "tools";
const models: Readonly<Record<Kind, string>> = { messages: "m", chat: "c", tools: "t" };

/**
 * Each request is told by its output tokens: ten times its marker when it ran to its end, nine less when only the
 * first of two iterations did. One input token an iteration.
 */
export const markerOf = (output: number) => Math.ceil(output / 10);
const SEARCH_MICROS = 320_000n;
const MAX_TOKENS = 1_000_000;
const SERVED_WITHIN_MS = 30_000;
const limits = { contextTokens: 2_000_000, maxOutputTokens: MAX_TOKENS };

/** A request's body, whole, without tools. */
export const requestOf = (marker: number, kind: Kind = "messages") => ({
  model: models[kind],
  // More than any marker takes: an upstream that reports more than was asked for is not believed (rule 7.9).
  max_tokens: MAX_TOKENS,
  messages: [{ role: "user", content: String(marker) }],
});

function answerTo({ question, rounds, tools }: ReadRequest, faults: Faults): Step {
  const all = 10 * Number(question);
  const looks = tools.some(({ name }) => name === "web_search");
  if (looks && rounds === 0) {
    const parts = [{ type: "tool", name: "web_search", input: { query: "gates" } }] as const;
    return { answer: { parts, usage: { input: 1, output: all - 9 } }, faults };
  }
  const usage = { input: 1, output: looks ? 9 : all };
  return { answer: { parts: [{ type: "text", text: "one two three" }], usage }, faults };
}

export interface WorldOptions {
  /** Each with a key of its own; the first is `org_acme` in most tests. */
  readonly organizations?: readonly string[];
  /** To each data plane. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** The key of an organization. */
export const keyOf = (organization: string): string =>
  organization === "org_acme" ? sampleKeys.inference : `sk-svc-${sha256(organization).slice(0, 40)}`;

export class World {
  readonly #stores: Stores;
  readonly #folder: string;
  readonly #engine: FakeSite;
  readonly upstream: FakeUpstream;
  readonly #planes = new Set<DataPlane>();
  readonly organizations: readonly string[];
  readonly #environment: Readonly<Record<string, string>>;
  readonly seen: Seen[] = [];
  /** How the upstream is slow. */
  faults: Faults = {};
  #markers = 0;
  /** Of single requests. */
  readonly #faultsOf = new Map<number, Faults>();
  /** How many calls of each request the upstream was sent. */
  readonly #served = new Map<number, number>();

  private constructor(
    stores: Stores,
    folder: string,
    upstream: FakeUpstream,
    engine: FakeSite,
    { organizations = ["org_acme"], environment = {} }: WorldOptions,
  ) {
    this.#stores = stores;
    this.#folder = folder;
    this.upstream = upstream;
    this.#engine = engine;
    this.organizations = organizations;
    this.#environment = environment;
  }

  static async open(stores: Stores, options: WorldOptions = {}): Promise<World> {
    const folder = await mkdtemp(join(tmpdir(), "gapura-money-"));
    const engine = await FakeSite.start(searxng([{ url: "https://gates.example/", title: "Gates" }]));
    const upstream: FakeUpstream = await startUpstream({
      fallback: (request) => world.#answer(request),
    });
    const world = new World(stores, folder, upstream, engine, options);
    await world.publish("old", 1);
    return world;
  }

  #answer(request: ReadRequest): Step {
    const marker = Number(request.question);
    this.#served.set(marker, (this.#served.get(marker) ?? 0) + 1);
    return answerTo(request, { delayBetweenEventsMs: 5, ...this.faults, ...this.#faultsOf.get(marker) });
  }

  /** The number of a request that is about to be made, which is all that it asks. `faults`: of its upstream alone. */
  mark(faults?: Faults): number {
    this.#markers += 1;
    if (faults !== undefined) this.#faultsOf.set(this.#markers, faults);
    return this.#markers;
  }

  /** Writes a snapshot into the folder that data planes of this name read. */
  async publish(name: string, serial: number, more: Partial<OrganizationEntry> = {}): Promise<void> {
    await writeFiles(
      join(this.#folder, name),
      slotFiles(serial % 2 === 1 ? "a" : "b", this.#routing(serial, more)),
    );
  }

  #routing(serial: number, more: Partial<OrganizationEntry>): Routing {
    const { url } = this.upstream;
    const messages = sampleUpstream({ dialect: "messages", url: `${url}/v1/messages` });
    const chat = sampleUpstream({ dialect: "chat", url: `${url}/v1/chat/completions` });
    const baseUrl = `http://127.0.0.1:${this.#engine.port}`;
    const searching: Policy = {
      source: sampleSource("ToolPolicy", "tools"),
      webSearch: { engine: { type: "searxng", baseUrl, credential: null }, timeoutMs: 15_000 },
      webFetch: null,
      xSearch: null,
      callsPerMinute: 60_000,
      iterations: 8,
      parallelCalls: 4,
    };
    return sampleRouting(serial, {
      routes: [
        sampleRoute(models.messages, { limits, upstreams: [messages] }),
        sampleRoute(models.chat, { limits, upstreams: [chat] }),
        sampleRoute(models.tools, { limits, upstreams: [messages], toolPolicy: "tools" }),
      ],
      policies: { tools: searching },
      organizations: this.organizations.map((id, index) =>
        sampleOrganization(id, {
          grants: [{ name: "start", amountMicros: "1000000000000000" }],
          apiKeys: [declaredKey("ci", keyOf(id))],
          ...(index === 0
            ? { adminKeys: [{ name: "root", sha256: sha256(sampleKeys.admin), hint: "sk-adm-svc-b" }] }
            : {}),
          ...more,
        }),
      ),
    });
  }

  /** Starts a data plane. @param dieAt `step:N` of billing/steps.ts. */
  async spawn(dieAt?: string, snapshots = "old"): Promise<DataPlane> {
    const plane = await DataPlane.spawn({
      stores: this.#stores,
      snapshot: join(this.#folder, snapshots),
      node: preloaded,
      environment: {
        ...this.#environment,
        ...(dieAt === undefined ? {} : { GAPURA_TEST_DIE_AT: dieAt }),
      },
    });
    this.#planes.add(plane);
    return plane;
  }

  /** As `spawn`, and waits until it serves. */
  async start(dieAt?: string, snapshots?: string): Promise<DataPlane> {
    const plane = await this.spawn(dieAt, snapshots);
    await plane.ready().catch((error: unknown) => {
      // It may meet its step while it starts: the charges of one that died before it are waiting.
      if (dieAt === undefined || plane.alive) throw error;
    });
    return plane;
  }

  /** One request, whole or streamed, in one dialect or the other; what became of it is remembered. */
  async ask(
    { url }: Pick<DataPlane, "url">,
    kind?: Kind,
    key: string = sampleKeys.inference,
    faults?: Faults,
  ): Promise<Seen> {
    const marker = this.mark(faults);
    const taken = kind ?? (["messages", "messages", "chat", "chat", "tools"] as const)[marker % 5] ?? "chat";
    const { status, answer } = await this.#exchange(url, marker, taken, key).catch(() => broken);
    const output = answer === null ? null : outputTokens(answer);
    const seen = { marker, status, complete: answer !== null, output };
    this.seen.push(seen);
    return seen;
  }

  /** One request that must be answered: a data plane of a busy machine may say 503, and a client asks again then. */
  async served(plane: Pick<DataPlane, "url">): Promise<void> {
    const deadline = performance.now() + SERVED_WITHIN_MS;
    for (;;) {
      const { status, complete } = await this.ask(plane);
      if (complete) return;
      expect(status, "an answer that is neither complete nor 503").toBe(503);
      expect(performance.now(), "refused for too long").toBeLessThan(deadline);
      await sleep(500);
    }
  }

  /** `answer` is null when it has no end. */
  async #exchange(url: string, marker: number, kind: Kind, key: string): Promise<Answered> {
    const stream = marker % 2 === 0;
    const tools = [{ type: "web_search_20250305", name: "web_search" }];
    const response = await fetch(`${url}${kind === "chat" ? "/v1/chat/completions" : "/v1/messages"}`, {
      method: "POST",
      headers: { "x-api-key": key, "content-type": "application/json" },
      body: JSON.stringify({ ...requestOf(marker, kind), stream, ...(kind === "tools" ? { tools } : {}) }),
      signal: AbortSignal.timeout(20_000),
    });
    const text = await response.text();
    const { status } = response;
    const ended = stream ? (kind === "chat" ? "data: [DONE]" : "event: message_stop") : '"usage":';
    return { status, answer: status === 200 && text.includes(ended) ? text : null };
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

  /**
   * Ends what is dead and compares what clients saw, what the upstream served and what the ledger says. `lost`: of the first
   * organization, the rows that only a Postgres has which is gone; the audit tells their sum, and nothing else.
   */
  async judge(lost: readonly LedgerRow[] = []): Promise<void> {
    for (const plane of this.#planes) await plane.stop("SIGTERM");
    // The sweeper of another data plane, which takes every hold for a dead owner's: they all are.
    const sweeper = await Plane.open(this.#stores, { running: false, rhythm: { staleMs: -1 } });
    try {
      await sweeper.upkeep.sweep();
      // Postgres may still be ending what a killed data plane was storing.
      await sweeper.drained();
      await sweeper.holds.refresh(this.organizations);
      this.#judgeRows([...(await readRows(sweeper.pool)), ...lost].filter(({ estimated }) => !estimated));
      const report = await reconcileLedger(sweeper.pool, sweeper.redis);
      const sum = lost.reduce((total, { cost }) => total + cost, 0n);
      const told = sum === 0n ? [] : [`${this.organizations[0]}: lost ${creditsText(sum)} credits`];
      expect(report.broken).toEqual(told);
      expect(report.holds).toBe(0);
    } finally {
      await sweeper.close();
    }
  }

  #judgeRows(rows: readonly LedgerRow[]): void {
    const charged = new Map(rows.map((row) => [markerOf(Number(row.output)), row]));
    expect(charged.size, "no request is charged twice").toBe(rows.length);
    for (const [marker, { iterations, input, output, cost, searches }] of charged) {
      expect(this.#served.get(marker) ?? 0, `calls of ${marker}`).toBeGreaterThanOrEqual(iterations);
      expect(cost).toBe(96n * input + 480n * output + SEARCH_MICROS * searches);
    }
    for (const { marker, complete, output } of this.seen) {
      if (!complete) continue;
      const row = charged.get(marker);
      expect(row, `the row of ${marker}, which was answered`).toMatchObject({ provisional: false });
      expect(Number(row?.input)).toBe(row?.iterations);
      if (output !== null) expect(row?.output, "charged for exactly what was told").toBe(BigInt(output));
    }
  }

  async close(): Promise<void> {
    for (const plane of this.#planes) await plane.stop("SIGKILL");
    await this.upstream.close();
    await this.#engine.stop();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

interface Answered {
  readonly status: number | null;
  readonly answer: string | null;
}
const broken: Answered = { status: null, answer: null };

const rowSchema = z.object({
  id: z.string(),
  output: z.bigint(),
  input: z.bigint(),
  searches: z.bigint(),
  iterations: z.number(),
  cost: z.bigint(),
  provisional: z.boolean(),
  /** Of an answer that was cut: its counters do not tell whose it is. */
  estimated: z.boolean(),
});
export type LedgerRow = z.infer<typeof rowSchema>;

/** All rows of a ledger. */
export const readRows = (pool: CommonQueryMethods): Promise<readonly LedgerRow[]> =>
  pool.any(sql.type(rowSchema)`
    select id, output_tokens as output, input_tokens as input, web_searches as searches, iterations, cost_micros as cost,
      provisional, estimated
    from usage
  `);

export const declaredKey = (name: string, secret: string) => ({
  name,
  sha256: sha256(secret),
  hint: secret.slice(0, 14),
  project: "default",
});

/** The last counter in the answer's text; a Chat stream has none unless it was asked for. */
function outputTokens(answer: string): number | null {
  const counters = [...answer.matchAll(/"(?:output|completion)_tokens":(\d+)/g)];
  const last = counters.at(-1)?.[1];
  return last === undefined ? null : Number(last);
}
