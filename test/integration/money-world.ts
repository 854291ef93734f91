/** Real stores with organizations in them, and data planes' worth of meters on top, for the money tests. */
import { setTimeout as sleep } from "node:timers/promises";
import { allServers, type RedisStore } from "../../dataplane/store/redis-servers.ts";
import type { Redis } from "ioredis";
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { Holds, type HoldsOptions } from "../../dataplane/billing/holds/holds.ts";
import { applyGrant } from "../../dataplane/billing/ledger/accounts.ts";
import { readLedgerId } from "../../dataplane/billing/ledger/ledger-identity.ts";
import type { FinalUsage, MeteredRequest, Observed } from "../../dataplane/billing/meter.ts";
import { shardOf, type Shard } from "../../dataplane/billing/holds/shard.ts";
import { Upkeep, type Rhythm } from "../../dataplane/billing/holds/upkeep.ts";
import type { Prices } from "../../dataplane/config/schema.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { openRedis, redisReady } from "../../dataplane/store/redis.ts";

const DRAINED_WITHIN_MS = 10_000;

/** An input token costs one micro-credit, an output token ten. */
export const plainPrices: Prices = {
  source: { kind: "PriceTable", namespace: "n", name: "p", uid: "u", generation: 1 },
  input: "1",
  output: "10",
  cacheRead: "0.1",
  cacheWrite5m: "1.25",
  cacheWrite1h: "2",
  tools: { webSearch: "320", webFetch: "0", xSearchPost: "160", xSearchProfile: "320" },
};

/** Usage that costs exactly `cost` micro-credits at `plainPrices`. */
export const observed = (cost: number): Observed => ({
  tokens: { input: cost, cacheRead: 0, cacheWrite5m: 0, cacheWrite1h: 0, output: 0, reasoning: 0 },
  tools: { webSearches: 0, webFetches: 0, xSearches: 0, xPosts: 0, xProfiles: 0 },
  estimated: false,
});

export const usage = (cost: number, more: Partial<FinalUsage> = {}): FinalUsage => ({
  ...observed(cost),
  status: "ok",
  iterations: 1,
  upstream: "primary",
  ...more,
});

export const request = (organizationId: string, more: Partial<MeteredRequest> = {}): MeteredRequest => ({
  id: newId("req"),
  acceptedAt: Date.now(),
  organizationId,
  projectId: "proj_test",
  keyId: "apikey_test",
  keyEpoch: 1,
  limits: [],
  limitsEpoch: 1,
  model: "model",
  contextTokens: 200_000,
  endpoint: "chat",
  batchId: null,
  tags: "",
  prices: plainPrices,
  inputTokens: 0,
  ...more,
});

export async function makeOrganization(pool: DatabasePool, id: string, credit: bigint): Promise<void> {
  await pool.transaction(async (transaction) => {
    await transaction.query(sql.unsafe`
      insert into organizations (id, display_name, declaration) values (${id}, ${id}, '') on conflict do nothing
    `);
    await applyGrant(transaction, { organizationId: id, name: "first", amount: credit, source: "declared" });
  });
}

export interface PlaneStores {
  readonly redisUrl: string;
  readonly postgresUrl: string;
}

/** What one data plane has of the money: a meter and its upkeep on connections of its own. */
export class Plane {
  readonly redis: RedisStore;
  readonly pool: DatabasePool;
  readonly holds: Holds;
  readonly upkeep: Upkeep;

  private constructor(redis: RedisStore, pool: DatabasePool, holds: Holds, upkeep: Upkeep) {
    this.redis = redis;
    this.pool = pool;
    this.holds = holds;
    this.upkeep = upkeep;
  }

  static async open(
    stores: PlaneStores,
    options: {
      readonly rhythm?: Partial<Rhythm>;
      readonly limits?: HoldsOptions["limits"];
      readonly recheckKey?: HoldsOptions["recheckKey"];
      readonly limitsOf?: HoldsOptions["limitsOf"];
      readonly waitMs?: number;
      readonly mostOwed?: number;
      /** Of Redis; as a data plane's unless a test has more patience. */
      readonly commandTimeoutMs?: number;
      /** To Postgres; as a data plane's unless there are many. */
      readonly maxConnections?: number;
      readonly kept?: NonNullable<HoldsOptions["kept"]>;
      /** False: no loop runs; the test takes each step itself. */
      readonly running?: boolean;
    } = {},
  ): Promise<Plane> {
    const log = pino({ level: process.env["MONEY_LOG"] ?? "silent" });
    const { maxConnections = 10, commandTimeoutMs = 1_000 } = options;
    const redis = openRedis(stores.redisUrl, { commandTimeoutMs, onError: () => {} });
    await redisReady(redis, 5_000);
    const pool = await openPostgres(stores.postgresUrl, { maxConnections, onError: () => {} });
    const holds = new Holds({
      redis,
      ledger: await readLedgerId(pool),
      pool,
      clock: systemClock,
      log,
      newEpoch: () => newId("req"),
      limits: options.limits ?? (() => undefined),
      recheckKey: options.recheckKey ?? (async () => null),
      limitsOf: options.limitsOf ?? (async () => ({ limits: [], keyEpoch: 0 })),
      ...(options.waitMs === undefined ? {} : { waitMs: options.waitMs }),
      ...(options.kept === undefined ? {} : { kept: options.kept }),
      ...(options.mostOwed === undefined ? {} : { mostOwed: options.mostOwed }),
    });
    const pod = newId("req");
    const upkeep = new Upkeep({
      redis,
      pool,
      holds,
      log,
      pod,
      random: Math.random,
      rhythm: options.rhythm ?? {},
    });
    await upkeep.look();
    if (options.running ?? true) upkeep.start();
    return new Plane(redis, pool, holds, upkeep);
  }

  /** Its Redis, which is one server. */
  get server(): Redis {
    const [server, ...others] = allServers(this.redis);
    if (server === undefined || others.length > 0) throw new Error("this Redis is not one server");
    return server;
  }

  /** Its Redis forgets everything, each of its servers. */
  async flush(): Promise<void> {
    await Promise.all(allServers(this.redis).map((server) => server.flushall()));
  }

  /** The part of the meter that counts this organization. */
  shardFor(organizationId: string): Shard {
    const shard = this.holds.shards[shardOf(organizationId)];
    if (shard === undefined) throw new Error("no such shard");
    return shard;
  }

  /**
   * Moves charges into the ledger until none waits in Redis. `Upkeep.drain` leaves out what a running plane's own loop is
   * storing at the same moment, and the ledger does not show that yet. @throws Error after ten seconds.
   */
  async drained(): Promise<void> {
    const deadline = performance.now() + DRAINED_WITHIN_MS;
    for (;;) {
      await this.upkeep.drain();
      const lengths = await Promise.all(this.holds.shards.map(({ tag }) => this.redis.xlen(`${tag}:usage`)));
      const waiting = lengths.reduce((sum, length) => sum + length, 0);
      if (waiting === 0) return;
      if (performance.now() > deadline) throw new Error(`${waiting} entries still wait for the ledger`);
      await sleep(20);
    }
  }

  /** As SIGKILL would: nothing is told to anybody. */
  async vanish(): Promise<void> {
    this.redis.disconnect();
    await this.upkeep.stop(0);
    await this.pool.end();
  }

  async close(): Promise<void> {
    await this.upkeep.stop();
    this.redis.disconnect();
    await this.pool.end();
  }
}
