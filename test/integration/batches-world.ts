/** A data plane's worth of batches on real stores, with a scripted upstream: what the tests of batches stand on. */
import type { RedisStore } from "../../dataplane/store/redis-servers.ts";
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { reconcileStorage } from "../../dataplane/batches/reconcile-storage.ts";
import { reconcileBatches } from "../../dataplane/batches/reconcile-batches.ts";
import type { BatchWorker, WorkerOptions } from "../../dataplane/batches/worker/worker.ts";
import type { BatchContext } from "../../dataplane/batches/context.ts";
import type { RequestRecords } from "../../dataplane/telemetry/request-record.ts";
import { ToolRoom } from "../../dataplane/batches/worker/tool-room.ts";
import { openBatches, type Batches, type BatchesOptions } from "../../dataplane/batches/start.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import type { Rhythm } from "../../dataplane/billing/holds/upkeep.ts";
import type { IdentityEntry, Route } from "../../dataplane/config/schema.ts";
import type { Snapshot } from "../../dataplane/config/snapshot.ts";
import { dialects } from "../../dataplane/dialects/dialect.ts";
import { FileStore } from "../../dataplane/files/file-store.ts";
import { PostgresContents } from "../../dataplane/files/postgres-contents.ts";
import type { StorageLimits } from "../../dataplane/files/storage.ts";
import { batchRoutes } from "../../dataplane/http/routes/batches.ts";
import { AnswerTurns, readingWith } from "../../dataplane/http/answer-turns.ts";
import { fileRoutes } from "../../dataplane/http/routes/files.ts";
import { messageBatchRoutes } from "../../dataplane/http/routes/message-batches.ts";
import { withFileReferences } from "../../dataplane/inference/request/file-references.ts";
import { TokenPeople } from "../../dataplane/identity/people.ts";
import type { FetchJson } from "../../dataplane/identity/tokens/fetch-json.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import type { RunTool } from "../../dataplane/tools/toolbox.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { toolPolicy, upstreamOf } from "../fakes/inference.ts";
import { noTools } from "../fakes/no-tools.ts";
import { SnapshotDirectory } from "../fakes/snapshot-directory.ts";
import {
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleStorage,
} from "../fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import { Plane } from "./money-world.ts";

export interface Stores {
  readonly redisUrl: string;
  readonly postgresUrl: string;
}

export interface PlaneOptions {
  readonly upstreamUrl: string;
  readonly clock?: { now(): number };
  /** False: no worker runs. */
  readonly working?: boolean;
  readonly routes?: readonly Route[];
  /** Default: those of the sample snapshot. */
  readonly organizations?: readonly string[];
  readonly runTool?: RunTool;
  /** Whose tokens are accepted, of which organization, and who tells the keys that sign them. */
  readonly people?: {
    readonly organizationId: string;
    readonly identity: IdentityEntry;
    readonly fetchJson: FetchJson;
  };
  /** How much each organization may keep. */
  readonly storage?: StorageLimits;
  readonly worker?: Partial<Pick<WorkerOptions, "rhythm" | "limits" | "busy" | "liveLoad">>;
  readonly waitMs?: number;
  /** How batches go by tool calls a minute; there is always room unless given. */
  readonly toolRoom?: ToolRoom;
  /** Is told of each run; nobody unless given. */
  readonly records?: RequestRecords;
  /** Limits of the keys that made batches; none unless given. */
  readonly limitsOf?: BatchesOptions["limitsOf"];
  /** How often the money's upkeep does its work. */
  readonly upkeep?: Partial<Rhythm>;
}

/** `m-messages`, `m-chat` and `m-responses`, each by an upstream of that dialect. */
export const routesTo = (url: string, more: Partial<Route> = {}): Route[] =>
  dialects.map((dialect) =>
    sampleRoute(`m-${dialect}`, {
      upstreams: [upstreamOf(url, dialect, { model: `upstream-${dialect}` })],
      toolPolicy: "test/default",
      timeouts: { connectMs: 1_000, firstByteMs: null, streamIdleMs: 5_000, requestMs: 20_000 },
      retries: { attempts: 1, retryOn: ["connect", "rate_limited", "server_error", "first_byte_timeout"] },
      ...more,
    }),
  );

const tokenPeople = ({ fetchJson }: { readonly fetchJson: FetchJson }, snapshot: Snapshot) =>
  new TokenPeople({
    snapshot: () => snapshot,
    directory: new SnapshotDirectory(() => snapshot),
    fetchJson,
    clock: systemClock,
  });

export class BatchPlane {
  readonly plane: Plane;
  readonly server: TestServer;
  readonly context: BatchContext;
  readonly worker: BatchWorker;
  readonly files: FileStore;
  readonly #batches: Batches;
  readonly #dispatcher: ReturnType<typeof newUpstreamDispatcher>;

  private constructor(parts: {
    plane: Plane;
    server: TestServer;
    batches: Batches;
    files: FileStore;
    dispatcher: ReturnType<typeof newUpstreamDispatcher>;
  }) {
    this.plane = parts.plane;
    this.server = parts.server;
    this.context = parts.batches.context;
    this.worker = parts.batches.worker;
    this.#batches = parts.batches;
    this.files = parts.files;
    this.#dispatcher = parts.dispatcher;
  }

  static async open(stores: Stores, options: PlaneOptions): Promise<BatchPlane> {
    const clock = options.clock ?? { now: () => Date.now() };
    const routing = sampleRouting(1, {
      routes: [...(options.routes ?? routesTo(options.upstreamUrl))],
      policies: { "test/default": toolPolicy },
      ...(options.organizations === undefined
        ? {}
        : { organizations: options.organizations.map((id) => sampleOrganization(id)) }),
    });
    const { people } = options;
    const organizations = routing.organizations.map((entry) =>
      entry.id === people?.organizationId ? { ...entry, identity: people.identity } : entry,
    );
    const snapshot: Snapshot = sampleSnapshot({ ...routing, organizations });
    const waiting = options.waitMs === undefined ? {} : { waitMs: options.waitMs };
    const plane = await Plane.open(stores, { ...waiting, rhythm: options.upkeep ?? {} });
    const log = pino({ level: process.env["BATCH_LOG"] ?? "silent" });
    const files = new FileStore({
      postgres: plane.pool,
      contents: new PostgresContents(plane.pool),
      clock,
      newId,
      limitsOf: () => options.storage ?? sampleStorage,
    });
    const dispatcher = newUpstreamDispatcher();
    const sealerOf = sealing([{ id: "test", key: Buffer.alloc(32) }]);
    const serve = withFileReferences(
      createServe(new Upstreams(dispatcher, { clock }), sealerOf, options.runTool ?? noTools),
      files,
    );
    const batches = openBatches({
      pool: plane.pool,
      redis: plane.redis,
      files,
      bodies: new ByteBudget(1024 ** 3),
      clock,
      newId,
      large: null,
      log,
      holds: plane.holds,
      serve,
      snapshot: () => snapshot,
      ...(options.records === undefined ? {} : { records: options.records }),
      toolRoom: options.toolRoom ?? new ToolRoom({ admit: async () => true }),
      limitsOf: options.limitsOf ?? (async () => ({ limits: [], keyEpoch: 1 })),
      random: () => 0,
      ...options.worker,
    });
    const { context, worker } = batches;
    let url = "";
    const turns = new AnswerTurns(readingWith(10));
    const server = await startTestServer(
      [fileRoutes(files, turns), messageBatchRoutes(context, turns, () => url), batchRoutes(context, turns)],
      {
        snapshot: () => snapshot,
        services: people === undefined ? {} : { people: tokenPeople(people, snapshot) },
      },
    );
    url = server.url;
    if (options.working !== false) await worker.start();
    return new BatchPlane({ plane, server, batches, files, dispatcher });
  }

  get pool(): DatabasePool {
    return this.plane.pool;
  }

  get redis(): RedisStore {
    return this.plane.redis;
  }

  async json(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
    const answer = await this.server.fetch(path, {
      method,
      ...(body === undefined
        ? {}
        : {
            body: typeof body === "string" ? body : JSON.stringify(body),
            headers: { "content-type": "application/json", ...headers },
          }),
      ...(body === undefined ? { headers } : {}),
    });
    const text = await answer.text();
    return { status: answer.status, headers: answer.headers, text, body: parse(text) };
  }

  async upload(
    lines: string | Buffer,
    name = "in.jsonl",
    headers: Record<string, string> = {},
    type = "application/jsonl",
  ): Promise<string> {
    const form = new FormData();
    form.append("purpose", "batch");
    form.append("file", new File([lines as BlobPart], name, { type }));
    const answer = await this.server.fetch("/v1/files", { method: "POST", body: form, headers });
    return ((await answer.json()) as { id: string }).id;
  }

  async lines(path: string): Promise<Record<string, unknown>[]> {
    const answer = await this.server.fetch(path);
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    const text = await answer.text();
    if (text !== "" && !text.endsWith("\n")) throw new Error(`${path} does not end in a line feed`);
    return text
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  }

  /** Creates a message batch. @returns its path. */
  async createMessages(n = 1): Promise<string> {
    const { body } = await this.json("POST", "/v1/messages/batches", { requests: messageRequests(n) });
    return `/v1/messages/batches/${String(body["id"])}`;
  }

  /** Creates a batch of the other form from a file's content. @returns its path. */
  async createFile(content: string | Buffer, more: object = {}): Promise<string> {
    const { body } = await this.json("POST", "/v1/batches", {
      input_file_id: await this.upload(content),
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
      ...more,
    });
    return `/v1/batches/${String(body["id"])}`;
  }

  /** How much is stored of batches. What is swept meanwhile makes it less. */
  stored(): Promise<number> {
    return this.count(
      sql.fragment`from batches batch full join batch_items item on item.batch_id = batch.id`,
    );
  }

  /** Polls until the batch has ended; `see` is called with each state on the way. */
  async ended(path: string, withinMs = 30_000, see: (batch: Json) => void = () => {}): Promise<Json> {
    const deadline = Date.now() + withinMs;
    for (;;) {
      const { body } = await this.json("GET", path);
      see(body);
      const status = String(body["processing_status"] ?? body["status"]);
      if (["ended", "completed", "failed", "expired", "cancelled"].includes(status)) return body;
      if (Date.now() > deadline) throw new Error(`not ended: ${JSON.stringify(body)}`);
      await new Promise((done) => setTimeout(done, 25));
    }
  }

  async count(query: ReturnType<typeof sql.fragment>): Promise<number> {
    return Number(
      await this.pool.oneFirst(sql.type(z.object({ n: z.bigint() }))`select count(*) as n ${query}`),
    );
  }

  /** What reconcile finds wrong once nothing runs any more. */
  async broken(): Promise<readonly string[]> {
    return [
      ...(await reconcileLedger(this.pool, this.redis)).broken,
      ...(await reconcileBatches(this.pool)),
      ...(await reconcileStorage(this.pool)),
    ];
  }

  async close(): Promise<void> {
    await this.#batches.stop(10_000);
    await this.server[Symbol.asyncDispose]();
    await this.#dispatcher.destroy();
    await this.plane.close();
  }
}

export type Json = Record<string, unknown>;
const parse = (text: string): Json => {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return {};
  }
};

/** A request of each dialect, to the model of that dialect. */
export const bodyOf = {
  messages: (text = "Hello", more: object = {}) => ({
    model: "m-messages",
    max_tokens: 100,
    messages: [{ role: "user", content: text }],
    ...more,
  }),
  chat: (text = "Hello", more: object = {}) => ({
    model: "m-chat",
    messages: [{ role: "user", content: text }],
    ...more,
  }),
  responses: (text = "Hello", more: object = {}) => ({ model: "m-responses", input: text, ...more }),
};

export const line = (customId: string, body: object, url = "/v1/chat/completions") =>
  JSON.stringify({ custom_id: customId, method: "POST", url, body });

export const messageRequests = (n: number) =>
  Array.from({ length: n }, (_, i) => ({ custom_id: `i${i}`, params: bodyOf.messages() }));
export const chatLines = (n: number) =>
  Array.from({ length: n }, (_, i) => line(`i${i}`, bodyOf.chat())).join("\n");
