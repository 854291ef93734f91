/** Stores that are away or full are told from bugs, by what their clients really throw. */
import { Redis } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TcpProxy } from "../../test/fakes/tcp-proxy.ts";
import { freshPostgres, freshRedis, type TestStore } from "../../test/integration/stores.ts";
import { openPostgres } from "./postgres.ts";
import { openRedis, redisReady } from "./redis.ts";
import { apiErrorOf, isStoreAway } from "./store-away.ts";

let store: TestStore;
let proxy: TcpProxy;
let pool: DatabasePool;
beforeAll(async () => {
  store = await freshPostgres();
  proxy = await TcpProxy.open(store.url);
  pool = await openPostgres(proxy.url, { onError: () => {}, statementTimeoutMs: 300 });
});
afterAll(async () => {
  await pool.end();
  await proxy.close();
  await store[Symbol.asyncDispose]();
});

const ask = () => pool.query(sql.unsafe`select count(*) from usage`);
const write = () =>
  pool.query(
    sql.unsafe`insert into organizations (id, display_name, declaration) values ('org_x', 'X', '') on conflict do nothing`,
  );
/** What it throws. */
async function thrown(act: () => Promise<unknown>): Promise<unknown> {
  try {
    await act();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}
const answersAgain = async () => {
  const answers = () =>
    ask().then(
      () => true,
      () => false,
    );
  await expect.poll(answers, { timeout: 20_000 }).toBe(true);
};

test.each([
  ["refuses connections", async () => proxy.cut(), async () => proxy.reconnect()],
  ["was killed", () => store.kill(), () => store.start()],
  ["is stopped", () => store.stop(), () => store.start()],
])("a Postgres that %s is away", async (_, hurt, heal) => {
  await answersAgain();
  await hurt();
  // Of connections that were open, and of new ones.
  const errors = [await thrown(ask), await thrown(ask)];
  await heal();
  expect(errors.map(isStoreAway)).toEqual([true, true]);
  expect(apiErrorOf(errors[1])).toMatchObject({
    code: "unavailable",
    retryAfterSeconds: 1,
    cause: errors[1],
  });
  await answersAgain();
});

test("a Postgres that takes no writes is away, and one that takes too long", async () => {
  await answersAgain();
  await pool.query(sql.unsafe`alter system set default_transaction_read_only = on`);
  await pool.query(sql.unsafe`select pg_reload_conf()`);
  let error: unknown;
  await expect
    .poll(async () => (error = await write().catch((refused: unknown) => refused)) instanceof Error)
    .toBe(true);
  expect(isStoreAway(error)).toBe(true);
  await pool.query(sql.unsafe`alter system reset default_transaction_read_only`);
  await pool.query(sql.unsafe`select pg_reload_conf()`);
  expect(isStoreAway(await thrown(() => pool.query(sql.unsafe`select pg_sleep(5)`)))).toBe(true);
});

test("a full disk is told by its SQLSTATE", () => {
  const full = Object.assign(new Error("could not extend file"), { code: "53100" });
  expect(isStoreAway(new Error("a query failed", { cause: full }))).toBe(true);
  expect(isStoreAway(Object.assign(new Error("no such table"), { code: "42P01" }))).toBe(false);
});

test("a statement that is wrong is a bug, and so is whatever else is thrown", async () => {
  await answersAgain();
  const wrong = await thrown(() => pool.query(sql.unsafe`select nothing from usage`));
  expect([wrong, new TypeError("x is undefined"), "text", null].map(isStoreAway)).toEqual([
    false,
    false,
    false,
    false,
  ]);
  expect(apiErrorOf(wrong)).toMatchObject({ code: "internal", cause: wrong });
});

test("a Redis that is full, frozen or gone is away; one that is asked nonsense is not", async () => {
  await using server = await freshRedis();
  const redis = openRedis(server.url, { onError: () => {}, commandTimeoutMs: 300 });
  const direct = new Redis(server.url);
  try {
    await redisReady(redis, 5_000);
    expect(isStoreAway(await thrown(() => redis.call("nonsense")))).toBe(false);
    await direct.config("SET", "maxmemory", "1");
    expect(isStoreAway(await thrown(() => redis.set("a", "b")))).toBe(true);
    await direct.config("SET", "maxmemory", "0");
    server.freeze();
    expect(isStoreAway(await thrown(() => redis.get("a")))).toBe(true);
    server.resume();
    await server.kill();
    expect(isStoreAway(await thrown(() => redis.get("a")))).toBe(true);
  } finally {
    redis.disconnect();
    direct.disconnect();
  }
});
