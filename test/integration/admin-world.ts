/**
 * The real server with everything that the admin API touches: two data planes on the same Postgres and Redis, a
 * scripted upstream behind one model of each dialect, and two organizations with keys of both kinds.
 */
import { randomBytes } from "node:crypto";
import type { RedisStore } from "../../dataplane/store/redis-servers.ts";
import { pino } from "pino";
import type { DatabasePool } from "slonik";
import { DirectorySync } from "../../dataplane/identity/directory-sync.ts";
import { KeyDirectory } from "../../dataplane/identity/directory.ts";
import { Keys, newInferenceKey } from "../../dataplane/identity/keys.ts";
import { TokenPeople } from "../../dataplane/identity/people.ts";
import { readLedgerId } from "../../dataplane/billing/ledger/ledger-identity.ts";
import { startMoney, type Money } from "../../dataplane/billing/money.ts";
import { openBatches } from "../../dataplane/batches/start.ts";
import { ToolRoom } from "../../dataplane/batches/worker/tool-room.ts";
import type { IdentityEntry, OrganizationEntry } from "../../dataplane/config/schema.ts";
import type { Snapshot } from "../../dataplane/config/snapshot.ts";
import { dialects } from "../../dataplane/dialects/dialect.ts";
import { FileStore } from "../../dataplane/files/file-store.ts";
import { PostgresContents } from "../../dataplane/files/postgres-contents.ts";
import { apiRoutes } from "../../dataplane/http/api-routes.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import { RequestRecorder } from "../../dataplane/requests/recorder.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { primaryReads } from "../../dataplane/store/reads.ts";
import { openRedis, redisReady } from "../../dataplane/store/redis.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { countUpstream } from "../../dataplane/upstream/count-tokens.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { upstreamOf } from "../fakes/inference.ts";
import { FakeIssuer, signingKey } from "../fakes/issuer.ts";
import {
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sha256,
  sampleStorage,
} from "../fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { freshDatabase, freshRedis } from "./stores.ts";

/** One organization's credentials, as its people hold them. */
export interface Tenant {
  readonly id: string;
  readonly inference: string;
  readonly admin: string;
}

const tenant = (id: string, letter: string): Tenant => ({
  id,
  inference: `sk-svc-${letter.repeat(40)}`,
  admin: `sk-adm-svc-${letter.repeat(40)}`,
});

const declared = (name: string, value: string) => ({
  name,
  sha256: sha256(value),
  hint: `${value.slice(0, 13)}...`,
});

export function tenantEntry(
  { id, inference, admin }: Tenant,
  more: Partial<OrganizationEntry> = {},
): OrganizationEntry {
  return sampleOrganization(id, {
    displayName: `The ${id}`,
    projects: ["default", "second"],
    apiKeys: [{ ...declared("ci", inference), project: "default" }],
    adminKeys: [declared("root", admin)],
    ...more,
  });
}

/** Of one organization, by its own audience: group `ml` are members, `watchers` viewers, `owners` admins. */
export const identityOf = (
  issuer: FakeIssuer,
  { id }: Tenant,
  more: Partial<IdentityEntry> = {},
): IdentityEntry => ({
  issuer: issuer.url,
  audiences: [id],
  jwksUrl: null,
  allowCidrs: [],
  allowPorts: [],
  rules: [
    { claims: { groups: "ml" }, role: "member", project: "default" },
    { claims: { groups: "watchers" }, role: "viewer" },
    { claims: { groups: "owners" }, role: "admin" },
  ],
  ...more,
});

/** One data plane. */
export interface AdminPlane {
  readonly server: TestServer;
  readonly money: Money;
  readonly directory: KeyDirectory;
  readonly sync: DirectorySync;
  readonly keys: Keys;
  /** Stores when it is told to. */
  readonly records: RequestRecorder;
}

const RETENTION_MS = 7 * 86_400_000;

export class AdminWorld {
  readonly a = tenant("org_a", "a");
  readonly b = tenant("org_b", "b");
  readonly pool: DatabasePool;
  readonly databaseUrl: string;
  readonly upstream: FakeUpstream;
  readonly issuer = new FakeIssuer("https://login.test", Date.now);
  readonly signer = signingKey("EC", "one");
  readonly planes: AdminPlane[] = [];
  snapshot: Snapshot;
  readonly #redisUrl: string;
  readonly #undo: (() => Promise<unknown>)[];
  #serial = 1;

  private constructor(
    pool: DatabasePool,
    databaseUrl: string,
    redisUrl: string,
    upstream: FakeUpstream,
    undo: (() => Promise<unknown>)[],
  ) {
    this.pool = pool;
    this.databaseUrl = databaseUrl;
    this.#redisUrl = redisUrl;
    this.upstream = upstream;
    this.#undo = undo;
    this.issuer.publish(this.signer);
    this.snapshot = this.#snapshotOf([tenantEntry(this.a), tenantEntry(this.b)]);
  }

  /** @param maxConnections of its data planes, which share them. */
  static async open(maxConnections = 10): Promise<AdminWorld> {
    const database = await freshDatabase();
    const redis = await freshRedis();
    const upstream = await startUpstream();
    const pool = await openPostgres(database.url, { maxConnections, onError: () => {} });
    const world = new AdminWorld(pool, database.url, redis.url, upstream, [
      () => pool.end(),
      () => upstream.close(),
      () => redis[Symbol.asyncDispose](),
      () => database.drop(),
    ]);
    await world.#addPlane();
    await world.#addPlane();
    return world;
  }

  get plane(): AdminPlane {
    const [first] = this.planes;
    if (first === undefined) throw new Error("the world has no plane");
    return first;
  }

  /** Declares other organizations, as a change of manifests would, on every plane. */
  async declare(organizations: OrganizationEntry[]): Promise<void> {
    this.#serial += 1;
    this.snapshot = this.#snapshotOf(organizations);
    for (const { sync } of this.planes) await sync.copy(this.snapshot);
  }

  /** Declares organization a with these rules for people, and b with its own beside it. */
  async declarePeople(
    identity: Partial<IdentityEntry> = {},
    entry: Partial<OrganizationEntry> = {},
  ): Promise<void> {
    await this.declare([
      tenantEntry(this.a, { identity: identityOf(this.issuer, this.a, identity), ...entry }),
      tenantEntry(this.b, { identity: identityOf(this.issuer, this.b) }),
    ]);
  }

  /** A token for an organization. */
  token({ id }: Tenant, group: string, claims: Readonly<Record<string, unknown>> = {}): string {
    return this.issuer.token(this.signer, { aud: id, groups: [group], ...claims }, { alg: "ES256" });
  }

  /** `fetch` with a key or a token on a plane; JSON in and out. */
  async call(
    key: string,
    method: string,
    path: string,
    options: {
      readonly body?: unknown;
      readonly plane?: number;
      readonly headers?: Record<string, string>;
      /** The answer is not JSON: a stream. */
      readonly raw?: boolean;
    } = {},
  ) {
    const plane = this.planes[options.plane ?? 0] ?? this.plane;
    const text = typeof options.body === "string" ? options.body : JSON.stringify(options.body);
    const answer = await plane.server.fetch(path, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(options.body === undefined ? {} : { "content-type": "application/json" }),
        ...options.headers,
      },
      ...(options.body === undefined ? {} : { body: text }),
    });
    const raw = await answer.text();
    return {
      status: answer.status,
      headers: answer.headers,
      raw,
      body: (raw === "" || options.raw === true ? {} : JSON.parse(raw)) as Record<string, unknown>,
    };
  }

  async close(): Promise<void> {
    for (const undo of this.#undo) await undo();
  }

  #snapshotOf(organizations: OrganizationEntry[]): Snapshot {
    const routes = dialects.map((dialect) =>
      sampleRoute(`m-${dialect}`, { upstreams: [upstreamOf(this.upstream.url, dialect)] }),
    );
    return sampleSnapshot({ ...sampleRouting(this.#serial), routes, organizations, objects: [] });
  }

  async #addPlane(): Promise<void> {
    const log = pino({ level: "silent" });
    const redis: RedisStore = openRedis(this.#redisUrl, { onError: () => {} });
    await redisReady(redis, 5_000);
    const { pool } = this;
    const reads = primaryReads(pool);
    const ledger = await readLedgerId(pool);
    const directory = new KeyDirectory({ pool, clock: systemClock });
    const money = startMoney({
      redis,
      pool,
      ledger,
      clock: systemClock,
      log,
      newId,
      snapshot: () => this.snapshot,
      recheckKey: (keyId) => directory.recheck(keyId),
      limitsOf: (keyId, projectId) => directory.limitsOf(keyId, projectId),
    });
    const { holds } = money;
    const sync = new DirectorySync({ pool, clock: systemClock, directory, holds, newId, log });
    sync.start();
    await money.begin();
    await sync.copy(this.snapshot);
    const dispatcher = newUpstreamDispatcher();
    const sealerOf = sealing([{ id: "test", key: randomBytes(32) }]);
    const upstreams = new Upstreams(dispatcher);
    const serve = createServe(upstreams, sealerOf, async () => ({
      kind: "error",
      code: "unavailable",
    }));
    const keys = new Keys({ pool, directory, holds, reads, newId, newKey: newInferenceKey });
    const files = new FileStore({
      postgres: pool,
      contents: new PostgresContents(pool),
      clock: systemClock,
      newId,
      limitsOf: () => sampleStorage,
    });
    const snapshot = () => this.snapshot;
    // Its worker is never started: what is created here stays as it was created.
    const batches = openBatches({
      pool,
      redis,
      files,
      bodies: new ByteBudget(1024 ** 3),
      clock: systemClock,
      newId,
      large: null,
      log,
      holds,
      serve,
      snapshot,
      toolRoom: new ToolRoom({ admit: async () => true }),
      limitsOf: (keyId, projectId) => directory.limitsOf(keyId, projectId),
      random: () => 0,
      busy: () => false,
    });
    const routes = apiRoutes({
      pool,
      reads,
      holds,
      keys,
      directory,
      files,
      context: batches.context,
      serve,
      countUpstream: countUpstream(dispatcher),
      upstreams,
      large: null,
      sealerOf,
      publicUrl: () => "http://gapura.test",
      requestRetentionMs: RETENTION_MS,
      acknowledged: (objects) => sync.acknowledged(objects),
    });
    const records = new RequestRecorder({ pool, clock: systemClock, log, retentionMs: RETENTION_MS });
    await records.keepPartitions();
    const { fetchJson } = this.issuer;
    const people = new TokenPeople({ snapshot, directory, fetchJson, clock: systemClock });
    const server = await startTestServer(routes, { snapshot, services: { directory, people, records } });
    this.planes.push({ server, money, directory, sync, keys, records });
    this.#undo.unshift(async () => {
      await server[Symbol.asyncDispose]();
      await batches.stop(0);
      await sync.stop();
      await money.stop();
      await dispatcher.destroy();
      redis.disconnect();
    });
  }
}
