import { pino } from "pino";
import { sql, type CommonQueryMethods, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import {
  freshDatabase,
  freshPostgres,
  freshRedis,
  freshReplica,
  type TestStore,
} from "../../test/integration/stores.ts";
import { collectAll } from "../lib/garbage.ts";
import { metrics } from "../telemetry/metrics.ts";
import { createPostgresPool, openPostgres } from "./postgres.ts";
import { ReplicaReads, type ReplicaReadsOptions } from "./reads.ts";
import type { RedisStore } from "./redis-servers.ts";
import { openRedis, redisReady } from "./redis.ts";

let stores: { readonly primary: TestStore; readonly replica: TestStore; readonly redis: TestStore };
let primary: DatabasePool;
let replica: DatabasePool;
let redis: RedisStore;
let now = 0;
const said: { level: number; msg: string }[] = [];
const log = pino(
  {},
  {
    write: (line: string) => {
      said.push(JSON.parse(line) as (typeof said)[number]);
    },
  },
);

beforeAll(async () => {
  const store = await freshPostgres();
  stores = { primary: store, replica: await freshReplica(store), redis: await freshRedis() };
  [primary, replica] = await Promise.all([
    openPostgres(store.url, { onError: () => {} }),
    createPostgresPool(stores.replica.url, { onError: () => {} }),
  ]);
  redis = openRedis(stores.redis.url, { onError: () => {} });
  await redisReady(redis, 5_000);
});
afterAll(async () => {
  redis?.disconnect();
  await Promise.all([primary?.end(), replica?.end()]);
  for (const store of Object.values(stores ?? {})) await store[Symbol.asyncDispose]();
});

/** One data plane's. */
const readsOf = (more: Partial<ReplicaReadsOptions> = {}) =>
  new ReplicaReads({ primary, replica, redis, log, elapsed: () => now, ...more });

const isReplica = sql.type(z.object({ is: z.boolean() }))`select pg_is_in_recovery() as is`;
const askedOf = async (from: CommonQueryMethods) =>
  (await from.oneFirst(isReplica)) ? ("replica" as const) : ("primary" as const);
const asked = async (reads: ReplicaReads, organization = "org_quiet") =>
  askedOf(await reads.of(organization));
const write = () => primary.query(sql.unsafe`select pg_logical_emit_message(true, 'test', 'a change')`);
const up = async () => (await metrics.replicaUp.get()).values[0]?.value;

/** Looks until it reads the replica, as the product does every second. */
async function well(reads: ReplicaReads): Promise<void> {
  await expect
    .poll(
      async () => {
        await reads.look();
        return asked(reads);
      },
      { timeout: 20_000 },
    )
    .toBe("replica");
}

test("the replica is read once it was found well, and the primary by an organization that changed something, on every data plane", async () => {
  const [one, other] = [readsOf(), readsOf()];
  expect(await asked(one)).toBe("primary");
  await Promise.all([well(one), well(other)]);
  expect(await up()).toBe(1);
  await one.changing("org_busy");
  for (const reads of [one, other]) {
    expect(await asked(reads, "org_busy")).toBe("primary");
    expect(await asked(reads)).toBe("replica");
  }
  expect(await redis.ttl("gapura:changing:{org_busy}")).toBeGreaterThan(45);
});

test("without Redis, which tells who changed something, the primary is read", async () => {
  const reads = readsOf();
  await well(reads);
  stores.redis.freeze();
  try {
    expect(await asked(reads)).toBe("primary");
  } finally {
    stores.redis.resume();
  }
});

test("a replica that falls behind is read until it is 30 s behind, and again when it has caught up", async () => {
  const reads = readsOf();
  await well(reads);
  const direct = await openPostgres(stores.replica.url, { maxConnections: 1, onError: () => {} });
  await direct.query(sql.unsafe`select pg_wal_replay_pause()`);
  try {
    // It lacks nothing while nothing is written.
    now += 60_000;
    await reads.look();
    expect(await asked(reads)).toBe("replica");
    await write();
    now += 20_000;
    await reads.look();
    expect((await metrics.replicaLag.get()).values[0]?.value).toBe(20);
    expect(await asked(reads)).toBe("replica");
    now += 11_000;
    await write();
    await reads.look();
    expect(await asked(reads)).toBe("primary");
    expect(await up()).toBe(0);
  } finally {
    await direct.query(sql.unsafe`select pg_wal_replay_resume()`);
    await direct.end();
  }
  await well(reads);
});

test("a replica that says nothing is given up within seconds, a read under way goes to the primary, and it is said once", async () => {
  const reads = readsOf();
  await well(reads);
  said.length = 0;
  const from = await reads.of("org_quiet");
  stores.replica.freeze();
  try {
    const began = performance.now();
    const reading = askedOf(from);
    await reads.look();
    expect(await reading).toBe("primary");
    expect(performance.now() - began).toBeLessThan(8_000);
    await reads.look();
    await reads.look();
    expect(said.filter(({ level }) => level === 40).map(({ msg }) => msg)).toEqual([
      "DATABASE_READ_URL is not read: all is read from DATABASE_URL",
    ]);
  } finally {
    stores.replica.resume();
  }
  await well(reads);
});

test("a killed replica costs no answer, and is read again when it is back", async () => {
  const reads = readsOf();
  await well(reads);
  const from = await reads.of("org_quiet");
  await stores.replica.kill();
  expect(await askedOf(from)).toBe("primary");
  await reads.look();
  expect(await up()).toBe(0);
  await stores.replica.start();
  await well(reads);
});

test("what the replica refuses is not asked of the primary too", async () => {
  const slow = await createPostgresPool(stores.replica.url, { statementTimeoutMs: 200, onError: () => {} });
  const reads = readsOf({ replica: slow });
  await well(reads);
  const from = await reads.of("org_quiet");
  await expect(from.query(sql.unsafe`select 'word'::int`)).rejects.toThrow(/invalid input syntax/);
  await expect(
    from.query(sql.unsafe`select pg_sleep(case when pg_is_in_recovery() then 5 else 0 end)`),
  ).rejects.toThrow(/timeout/);
  await slow.end();
});

test("a database that is another ledger is not read", async () => {
  await using foreign = await freshDatabase();
  const pool = await openPostgres(foreign.url, { onError: () => {} });
  await pool.query(sql.unsafe`update ledger set id = 'another'`);
  said.length = 0;
  const reads = readsOf({ replica: pool });
  await reads.look();
  expect(await asked(reads)).toBe("primary");
  expect(JSON.stringify(said)).toContain("DATABASE_READ_URL is another ledger than DATABASE_URL");
  await pool.end();
});

test("what was read of the replica is forgotten once its reader has it, however long the replica is well", async () => {
  const reads = readsOf();
  await well(reads);
  const from = await reads.of("org_quiet");
  const rows = await Promise.all(
    Array.from({ length: 5 }, async () => new WeakRef(await from.any(isReplica))),
  );
  await expect
    .poll(() => {
      collectAll();
      return rows.filter((kept) => kept.deref() !== undefined).length;
    })
    .toBe(0);
  expect(await asked(reads)).toBe("replica");
});
