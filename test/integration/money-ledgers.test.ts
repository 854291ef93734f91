/** A Redis database belongs to one ledger (rule 12.7). */
import { sql } from "slonik";
import { afterEach, beforeEach, expect, test } from "vitest";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { shardOf, shardTag } from "../../dataplane/billing/holds/shard.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { redisReady } from "../../dataplane/store/redis.ts";
import { Plane, makeOrganization, request, usage } from "./money-world.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";

let redis: TestStore;
let databases: TestDatabase[];
let planes: Plane[];
beforeEach(async () => {
  redis = await freshRedis();
  databases = await Promise.all([freshDatabase(), freshDatabase()]);
  planes = [];
  // The databases of the tests are copies of one.
  for (const [index, { url }] of databases.entries()) {
    const pool = await openPostgres(url, { onError: () => {} });
    await pool.query(sql.unsafe`update ledger set id = ${`ledger${index + 1}`}`);
    await makeOrganization(pool, "org", 1_000n);
    await pool.end();
  }
});
afterEach(async () => {
  for (const plane of planes) await plane.vanish();
  await redis[Symbol.asyncDispose]();
  for (const database of databases) await database.drop();
});

async function open(ledger: 1 | 2, running = false): Promise<Plane> {
  const postgresUrl = databases[ledger - 1]?.url ?? "";
  const plane = await Plane.open({ redisUrl: redis.url, postgresUrl }, { running });
  planes.push(plane);
  await plane.upkeep.watch();
  return plane;
}
const isRefused = { code: "unavailable" };
const rows = (plane: Plane) => plane.pool.anyFirst(sql.unsafe`select cost_micros from usage`);

test("a second installation on the same Redis is refused, says so, and charges nobody", async () => {
  const ours = await open(1);
  const bill = await ours.holds.open(request("org"), 100n);
  await bill.settle(usage(40));
  const theirs = await open(2, true);
  await expect.poll(() => theirs.upkeep.fault).toContain("belongs to the ledger ledger1");
  expect(ours.upkeep.fault).toBeNull();
  await expect(theirs.holds.open(request("org"), 1n)).rejects.toMatchObject(isRefused);
  await expect(theirs.upkeep.drain()).rejects.toThrow("belongs to the ledger ledger1");
  expect(await rows(theirs)).toEqual([]);
  await ours.upkeep.drain();
  expect(await rows(ours)).toEqual([40n]);
  expect(await ours.holds.standing.credit("org")).toMatchObject({ used: 40n });
  expect((await reconcileLedger(ours.pool, ours.redis)).broken).toEqual([]);
  expect((await reconcileLedger(theirs.pool, theirs.redis)).broken[0]).toContain(
    "belongs to the ledger ledger1",
  );
});

test("a Redis that is started again still belongs to its ledger, with what waits in it", async () => {
  const ours = await open(1);
  await (await ours.holds.open(request("org"), 100n)).settle(usage(40));
  await redis.kill();
  await redis.start();
  const theirs = await open(2);
  await expect(theirs.holds.open(request("org"), 1n)).rejects.toMatchObject(isRefused);
  await expect(theirs.upkeep.drain()).rejects.toThrow("belongs to the ledger ledger1");
  expect(await rows(theirs)).toEqual([]);
  await redisReady(ours.redis, 5_000);
  await ours.upkeep.drain();
  expect(await rows(ours)).toEqual([40n]);
});

test("when another ledger was first after a flush, running requests are charged past Redis, and none goes there", async () => {
  const ours = await open(1);
  const [charged, running] = [
    await ours.holds.open(request("org"), 100n),
    await ours.holds.open(request("org"), 100n),
  ];
  await charged.settle(usage(40));
  await ours.upkeep.drain();
  await ours.redis.flushall();
  const theirs = await open(2);
  await (await theirs.holds.open(request("org"), 100n)).settle(usage(7));
  await running.settle(usage(20));
  expect(await rows(ours)).toEqual(expect.arrayContaining([40n, 20n]));
  await theirs.upkeep.drain();
  expect(await rows(theirs)).toEqual([7n]);
  expect(await theirs.redis.xlen(`${shardTag(shardOf("org"))}:usage`)).toBe(0);
  // Emptied, and first taken by the right one, it serves again.
  await theirs.vanish();
  planes.splice(planes.indexOf(theirs), 1);
  await ours.redis.flushall();
  await ours.upkeep.watch();
  await (await ours.holds.open(request("org"), 100n)).settle(usage(1));
  await ours.upkeep.watch();
  expect(ours.upkeep.fault).toBeNull();
  await ours.upkeep.drain();
  expect(await ours.holds.standing.credit("org")).toMatchObject({ used: 61n });
});
