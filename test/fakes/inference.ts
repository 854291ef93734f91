/** What a test of inference needs around it: a snapshot of one route, a meter that records, a sink that keeps. */
import { EventEmitter } from "node:events";
import { pino } from "pino";
import type { Bill, FinalUsage, Meter, MeteredRequest, Observed } from "../../dataplane/billing/meter.ts";
import type { Micros } from "../../dataplane/billing/credits.ts";
import type { Policy, Route, Upstream } from "../../dataplane/config/schema.ts";
import { Snapshot } from "../../dataplane/config/snapshot.ts";
import { type Dialect, dialectPath } from "../../dataplane/dialects/dialect.ts";
import { type AnswerBytes, joinedBytes } from "../../dataplane/inference/answer/answer-bytes.ts";
import type { AnswerSink, InferenceCall } from "../../dataplane/inference/call.ts";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { Cancellation } from "../../dataplane/lib/cancellation.ts";
import { newRequestSummary } from "../../dataplane/telemetry/request-summary.ts";
import { sampleStorage, sampleUpstream } from "./sample-snapshot.ts";

const source = { kind: "ModelRoute", namespace: "test", name: "m", uid: "u", generation: 1 } as const;

export function upstreamOf(baseUrl: string, dialect: Dialect, more: Partial<Upstream> = {}): Upstream {
  return sampleUpstream({ dialect, url: baseUrl + dialectPath[dialect], ...more });
}

export function routeTo(upstreams: Upstream[], more: Partial<Route> = {}): Route {
  return {
    source,
    model: "public-model",
    aliases: ["alias"],
    displayName: "Public",
    ownedBy: "test",
    createdAt: 0,
    capabilities: {
      toolCalling: true,
      imageInput: true,
      pdfInput: true,
      thinking: true,
      countTokens: true,
      documentCitations: true,
      samplingParameters: true,
    },
    limits: { contextTokens: 200_000, maxOutputTokens: 1000 },
    upstreams,
    affinity: "none",
    timeouts: { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 2000, requestMs: 10_000 },
    retries: { attempts: 1, retryOn: ["connect", "rate_limited", "server_error", "first_byte_timeout"] },
    toolPolicy: null,
    prices: {
      source: { ...source, kind: "PriceTable" },
      input: "1",
      output: "2",
      cacheRead: "0.1",
      cacheWrite5m: "1.25",
      cacheWrite1h: "2",
      tools: { webSearch: "320", webFetch: "0", xSearchPost: "160", xSearchProfile: "320" },
    },
    ...more,
  };
}

/** How a client of each dialect asks for web search. */
export const declaredSearch = {
  messages: { tools: [{ type: "web_search_20250305", name: "web_search" }] },
  chat: { web_search_options: {} },
  responses: { tools: [{ type: "web_search" }] },
};

/** All tools on, with engines that nobody listens for: what the tools bring is the test's own. */
export const toolPolicy: Policy = {
  source: { ...source, kind: "ToolPolicy" },
  webSearch: {
    engine: { type: "searxng", baseUrl: "http://127.0.0.1:9", credential: null },
    timeoutMs: 15_000,
  },
  webFetch: {
    timeoutMs: 20_000,
    maxBytes: 10_485_760,
    cacheTtlMs: 900_000,
    allowCidrs: [],
    allowPorts: [],
    proxy: null,
  },
  xSearch: { engine: { baseUrl: "http://127.0.0.1:9", credential: null }, timeoutMs: 30_000 },
  callsPerMinute: 60,
  iterations: 8,
  parallelCalls: 4,
};

export function snapshotOf(
  routes: Route[],
  allowedModels = ["*"],
  credentials: Record<string, string> = {},
  policies: Record<string, Policy> = {},
  organizationId = "org_a",
): Snapshot {
  const serial = 1;
  const index = { schemaVersion: 1, serial, hash: "", routing: [], credentials: [] };
  const organization = {
    source: { ...source, kind: "Organization" as const },
    id: organizationId,
    displayName: "A",
    suspended: false,
    grants: [],
    allowedModels,
    toolCallsPerMinute: null,
    storage: sampleStorage,
    rateLimits: { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null },
    projects: ["default"],
    apiKeys: [],
    adminKeys: [],
  };
  const routing = {
    schemaVersion: 1,
    serial,
    routes,
    policies,
    organizations: [organization],
    objects: [],
  };
  return new Snapshot(index, routing, { serial, values: credentials });
}

/** Admits everything and remembers what it was told. */
export class RecordingMeter implements Meter {
  readonly opened: { request: MeteredRequest; estimate: Micros }[] = [];
  readonly settled: FinalUsage[] = [];
  readonly observed: Observed[] = [];
  released = 0;
  /** What `advance` answers, in order; true when used up. */
  readonly credit: boolean[] = [];
  /** What `spend` was told, and what it answers. */
  readonly spent: Observed[] = [];
  left: (spent: Observed) => Micros = () => 1_000_000_000n;
  /** Thrown by `open`. */
  refusal: Error | null = null;
  /** What a settle waits for, or fails with. */
  onSettle: () => Promise<void> = async () => {};

  async open(request: MeteredRequest, estimate: Micros): Promise<Bill> {
    if (this.refusal !== null) throw this.refusal;
    this.opened.push({ request, estimate });
    let end: Promise<void> | null = null;
    let settled: FinalUsage | null = null;
    return {
      headers: {},
      get settled() {
        return settled;
      },
      charged: null,
      observe: (observed) => void this.observed.push(observed),
      advance: async () => this.credit.shift() ?? true,
      spend: async (spent) => {
        this.spent.push(spent);
        return this.left(spent);
      },
      settle: (usage) => {
        if (end !== null) return end;
        settled = usage;
        this.settled.push(usage);
        end = this.onSettle();
        return end;
      },
      release: async () => {
        if (end !== null) return;
        end = Promise.resolve();
        this.released += 1;
      },
    };
  }
}

/** Keeps an answer; can be slow, and can go away. */
class KeepingSink extends EventEmitter implements AnswerSink {
  status = 0;
  headers: Readonly<Record<string, string>> = {};
  readonly pieces: Buffer[] = [];
  ended = false;
  /** Called before each piece is taken; false: the reader is behind. */
  accept: () => boolean = () => true;
  waitingBytes = 0;
  readonly closed = new Cancellation();
  #drained = Promise.withResolvers<void>();

  start(status: number, headers: Readonly<Record<string, string>>): void {
    if (this.status !== 0) throw new Error("started twice");
    this.status = status;
    this.headers = headers;
    this.emit("start");
  }

  write(bytes: AnswerBytes): boolean {
    if (this.status === 0 || this.ended) throw new Error("written before the start or after the end");
    // Kept as it is, as a batch keeps it (batches/worker/run.ts): a copy of 60 MiB would be the longest turn of its test.
    this.pieces.push(Buffer.isBuffer(bytes) ? bytes : joinedBytes(bytes));
    this.emit("piece");
    return this.accept();
  }

  drained(): Promise<void> {
    return this.#drained.promise;
  }

  /** There is room again. */
  drain(): void {
    this.#drained.resolve();
    this.#drained = Promise.withResolvers();
  }

  end(bytes?: AnswerBytes): void {
    if (bytes !== undefined) this.write(bytes);
    this.ended = true;
  }

  /** The reader goes away. */
  leave(): void {
    this.closed.abort();
    this.drain();
  }

  get body(): Buffer {
    return Buffer.concat(this.pieces);
  }

  get text(): string {
    return this.body.toString();
  }
}

export interface TestCall extends InferenceCall {
  readonly sink: KeepingSink;
  readonly meter: RecordingMeter;
}

export function callOf(
  dialect: Dialect,
  snapshot: Snapshot,
  body: string | Buffer | object,
  headers: InferenceCall["headers"] = {},
): TestCall {
  return {
    id: "req_test",
    acceptedAt: 1_795_000_000_000,
    dialect,
    body:
      typeof body === "string" || Buffer.isBuffer(body)
        ? Buffer.from(body)
        : Buffer.from(JSON.stringify(body)),
    bodyLease: new ByteBudget(1024 ** 3).lease("org_a"),
    headers,
    principal: {
      kind: "inference",
      keyId: "apikey_1",
      keyName: "test",
      expiresAt: null,
      limits: [],
      organizationId: "org_a",
      projectId: "proj_1",
      keyEpoch: 0,
    },
    snapshot,
    meter: new RecordingMeter(),
    batchId: null,
    sink: new KeepingSink(),
    log: pino({ level: "silent" }),
    summary: newRequestSummary(null),
  };
}
