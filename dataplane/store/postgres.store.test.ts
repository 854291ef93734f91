import { setTimeout as sleep } from "node:timers/promises";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { z } from "zod";
import { leastOf, LoopTurns } from "../../test/fakes/loop-turns.ts";
import { TcpProxy } from "../../test/fakes/tcp-proxy.ts";
import {
  freshDatabase,
  freshPostgres,
  singlePostgres,
  type TestDatabase,
} from "../../test/integration/stores.ts";
import { isRefusal } from "./once-there.ts";
import { oncePostgresIsThere, openPostgres } from "./postgres.ts";
import { checkPostgres } from "./ready.ts";

let database: TestDatabase;
let pool: DatabasePool;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {}, statementTimeoutMs: 300 });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

test("a Postgres that takes no writes, as a standby before its promotion, is told of and still read", async () => {
  expect(await checkPostgres(pool)).toBe(null);
  await using standby = await freshDatabase();
  const { pathname } = new URL(standby.url);
  await pool.query(
    sql.unsafe`alter database ${sql.identifier([pathname.slice(1)])} set default_transaction_read_only = on`,
  );
  const reader = await openPostgres(standby.url, { onError: () => {} });
  try {
    expect(await checkPostgres(reader)).toEqual({
      degraded: "it takes no writes: files, batches and changes get 503, and charges wait",
    });
  } finally {
    await reader.end();
  }
});

test("int8 arrives as bigint, exact beyond 2^53", async () => {
  const row = await pool.one(
    sql.type(z.object({ micros: z.bigint() }))`select 9007199254740993::int8 as micros`,
  );
  expect(row.micros).toBe(9007199254740993n);
});

test("a timestamp arrives as Unix milliseconds", async () => {
  const row = await pool.one(
    sql.type(z.object({ at: z.number() }))`select '2026-11-21T00:00:00.5Z'::timestamptz as at`,
  );
  expect(row.at).toBe(Date.UTC(2026, 10, 21, 0, 0, 0, 500));
});

test("a row that is not what the statement promises is an error", async () => {
  await expect(pool.one(sql.type(z.object({ n: z.string() }))`select 1 as n`)).rejects.toThrow(/row/);
});

test("a statement that runs too long is ended", async () => {
  await expect(pool.query(sql.unsafe`select pg_sleep(5)`)).rejects.toThrow(/timeout/i);
});

test("a long answer is taken in turns with others", async () => {
  const own = await openPostgres(database.url, { onError: () => {} });
  const longest = await leastOf(20, async () => {
    const turns = new LoopTurns();
    const rows = await own.any(sql.type(z.unknown())`
      select repeat('a', 40) as name, 'b' as kind, n, now() as at, jsonb_build_object('n', n) as limits
      from generate_series(1, 40000) n
    `);
    expect(rows).toHaveLength(40_000);
    await sleep(5);
    return turns.stop();
  });
  expect(longest, "milliseconds").toBeLessThan(20);
  await own.end();
});

test("a statement that finds nothing or is refused tells nobody that Postgres is away, one that is cut off does", async () => {
  const told: Error[] = [];
  const own = await openPostgres(database.url, {
    onError: (error) => told.push(error),
    statementTimeoutMs: 300,
  });
  const nothing = sql.type(z.object({ n: z.number() }))`select 1 as n where false`;
  await expect(own.oneFirst(nothing)).rejects.toThrow(/no rows/);
  const twice = sql.unsafe`insert into batch_workers (id) values ('twice'), ('twice')`;
  await expect(own.query(twice)).rejects.toThrow(/unique/i);
  await expect(own.query(sql.unsafe`select 'x'::int`)).rejects.toThrow(/invalid input/i);
  expect(told).toEqual([]);
  await expect(own.query(sql.unsafe`select pg_sleep(5)`)).rejects.toThrow(/timeout/i);
  expect(told).toHaveLength(1);
  await own.end();
});

test("Postgres going away breaks no process, and the pool works again when it is back", async () => {
  await using store = await freshPostgres();
  const errors: Error[] = [];
  const own = await openPostgres(store.url, { onError: (error) => errors.push(error) });
  const one = () => own.oneFirst(sql.type(z.object({ n: z.number() }))`select 1 as n`);
  expect(await one()).toBe(1);
  store.freeze();
  const waiting = one();
  await expect(Promise.race([waiting, sleep(200, "silent")])).resolves.toBe("silent");
  store.resume();
  expect(await waiting).toBe(1);
  await store.kill();
  await expect(one()).rejects.toThrow(/ECONN|[Tt]erminated|connect/);
  await store.start();
  expect(await one()).toBe(1);
  await own.end();
});

test("nobody waits longer for a connection than the pool was opened for, and who was next has its place again", async () => {
  const proxy = await TcpProxy.open(database.url);
  const own = await openPostgres(proxy.url, {
    onError: () => {},
    maxConnections: 2,
    connectionWithinMs: 300,
  });
  const one = () => own.oneFirst(sql.type(z.object({ n: z.number() }))`select 1 as n`);
  const inTransaction = () => own.transaction((transaction) => transaction.query(sql.unsafe`select 1`));
  await Promise.all([one(), one()]);
  proxy.hole();
  const stuck = [one(), one()];
  const waiting = [one(), inTransaction(), own.connect(async () => null), own.any(sql.unsafe`select 1`)];
  const began = performance.now();
  for (const ended of await Promise.allSettled(waiting))
    expect(ended).toMatchObject({ status: "rejected", reason: { name: "StoreAway" } });
  expect(performance.now() - began, "milliseconds").toBeLessThan(3_000);
  proxy.reconnect();
  // Who has a connection is not who waits for one.
  expect(await Promise.all(stuck)).toEqual([1, 1]);
  expect(await Promise.all(Array.from({ length: 10 }, one))).toEqual(Array.from({ length: 10 }, () => 1));
  await inTransaction();
  await own.end();
  await proxy.close();
});

test("who needs Postgres waits for it, for as long as it has patience", async () => {
  // A pooler that is there while its Postgres is not refuses no connection.
  await using store = await singlePostgres();
  await store.kill();
  const heard: string[] = [];
  const onAway = (error: Error) => heard.push(error.message);
  await expect(openPostgres(store.url, { onError: () => {}, withinMs: 200, onAway })).rejects.toThrow(
    "ECONNREFUSED",
  );
  expect(heard.length).toBeGreaterThan(0);
  const opening = openPostgres(store.url, { onError: () => {}, onAway });
  await sleep(500);
  await store.start();
  const own = await opening;
  expect(await own.oneFirst(sql.type(z.object({ n: z.number() }))`select 1 as n`)).toBe(1);
  await own.end();
});

test("what Postgres does not like is not asked twice, and one that lets nobody in is known as such", async () => {
  const tries = { count: 0 };
  const ask = () => {
    tries.count += 1;
    return pool.query(sql.unsafe`select nonsense`);
  };
  await expect(oncePostgresIsThere(ask, { withinMs: 60_000 })).rejects.toThrow(/nonsense/);
  expect(tries.count).toBe(1);
  // A pooler says it in words of its own.
  const nobody = new URL(inject("postgresUrl"));
  nobody.pathname = "/no_such_database";
  await expect(openPostgres(nobody.href, { onError: () => {}, withinMs: 0 })).rejects.toSatisfy(isRefusal);
});
