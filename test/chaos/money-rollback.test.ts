/**
 * A Postgres that lost its last transactions, in a failover to a replica that had not heard of them or by a restore, while
 * Redis lives (rules 12.4, 12.7): what was lost is charged again, and nobody spends it twice.
 */
import { pino } from "pino";
import { sql } from "slonik";
import { afterEach, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { adopt } from "../../dataplane/billing/holds/adopt-command.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { metrics } from "../../dataplane/telemetry/metrics.ts";
import { Plane, makeOrganization, request, usage } from "../integration/money-world.ts";
import { freshPostgres, freshRedis, type TestStore } from "../integration/stores.ts";

let postgres: TestStore;
let redis: TestStore;
let planes: Plane[];
beforeEach(async () => {
  [postgres, redis] = await Promise.all([freshPostgres(), freshRedis()]);
  planes = [];
});
afterEach(async () => {
  for (const plane of planes) await plane.vanish();
  await Promise.all([postgres[Symbol.asyncDispose](), redis[Symbol.asyncDispose]()]);
});

async function open(options: Parameters<typeof Plane.open>[1] = {}): Promise<Plane> {
  const plane = await Plane.open(
    { redisUrl: redis.url, postgresUrl: postgres.url },
    { running: false, ...options },
  );
  planes.push(plane);
  return plane;
}
async function end(plane: Plane): Promise<void> {
  planes.splice(planes.indexOf(plane), 1);
  await plane.vanish();
}
async function charge(plane: Plane, cost: number): Promise<void> {
  await (await plane.holds.open(request("org"), BigInt(cost))).settle(usage(cost));
}
/** All rows are in the ledger, and this data plane knows it. */
async function drained(plane: Plane): Promise<void> {
  await plane.upkeep.drain();
  await plane.upkeep.watch();
}
/** Connections of before break with their first use. */
async function reconnected({ pool }: Plane): Promise<void> {
  const answers = () =>
    pool.any(sql.unsafe`select 1`).then(
      () => true,
      () => false,
    );
  await expect.poll(answers, { timeout: 10_000 }).toBe(true);
}
async function rollBack(plane: Plane): Promise<void> {
  await postgres.rollBack();
  await reconnected(plane);
}
const rowsOf = (plane: Plane) =>
  plane.pool.anyFirst(
    sql.type(z.object({ cost: z.bigint() }))`select cost_micros as cost from usage order by cost_micros`,
  );
const broken = async ({ pool, redis: connection }: Plane) => (await reconcileLedger(pool, connection)).broken;

test("what the data plane still knows is charged again row by row, and nothing of it is spent twice", async () => {
  const plane = await open();
  await makeOrganization(plane.pool, "org", 1_000n);
  await charge(plane, 100);
  await drained(plane);
  await postgres.save();
  await charge(plane, 700);
  await drained(plane);
  // On its way to the ledger when that goes away.
  await charge(plane, 50);
  await rollBack(plane);
  // Before anything was compared Redis goes on by what it knows.
  await expect(plane.holds.open(request("org"), 500n).then((bill) => bill.settle(usage(150)))).resolves.toBe(
    undefined,
  );
  // All is spent, but only the ledger says so for good.
  await expect(plane.holds.open(request("org"), 500n)).rejects.toMatchObject({ code: "rate_limited" });

  await plane.upkeep.drain().catch(() => {});
  await plane.upkeep.look();
  await drained(plane);
  await plane.upkeep.look();
  expect(await rowsOf(plane)).toEqual([50n, 100n, 150n, 700n]);
  await plane.holds.refresh(["org"]);
  expect(await plane.holds.standing.credit("org")).toMatchObject({ used: 1_000n, available: 0n });
  expect(await broken(plane)).toEqual([]);
});

test("what only Redis knows is charged by its sum, and reconcile tells it", async () => {
  const plane = await open();
  const other = await open();
  await makeOrganization(plane.pool, "org", 1_000n);
  await charge(plane, 100);
  await drained(plane);
  await postgres.save();
  await charge(plane, 600);
  await charge(other, 30);
  await drained(plane);
  // The one that knows the larger row is gone.
  await end(plane);
  const before = (await metrics.ledgerLost.get()).values[0]?.value ?? 0;
  await other.upkeep.watch();
  await rollBack(other);
  await other.upkeep.look();
  expect(await rowsOf(other)).toEqual([30n, 100n]);
  await other.holds.refresh(["org"]);
  expect(await other.holds.standing.credit("org")).toMatchObject({ used: 730n, available: 270n });
  expect(await broken(other)).toEqual(["org: lost 0.0006 credits"]);
  expect(((await metrics.ledgerLost.get()).values[0]?.value ?? 0) - before).toBeCloseTo(0.00063);
  // Whoever looks again finds nothing more.
  await (await open()).upkeep.look();
  expect(await other.holds.standing.credit("org")).toMatchObject({ used: 730n });
});

test("a data plane that starts on a restored ledger charges nothing, says what to do, and serves when that is done", async () => {
  const plane = await open();
  await makeOrganization(plane.pool, "org", 1_000n);
  await charge(plane, 100);
  await drained(plane);
  await postgres.save();
  await charge(plane, 600);
  await drained(plane);
  await end(plane);
  await postgres.rollBack();

  const late = await open();
  expect(late.holds.fault).toContain("Redis knows charges of 1 organizations that this Postgres has not");
  expect(late.holds.fault).toContain("main.ts adopt");
  await expect(late.holds.open(request("org"), 1n)).rejects.toMatchObject({ code: "unavailable" });
  await late.upkeep.look();
  expect(await rowsOf(late)).toEqual([100n]);

  const options = { log: pino({ level: "silent" }), newEpoch: () => newId("req") };
  expect(await adopt(late.pool, late.redis, options)).toEqual([
    "org: lost 0.0006 credits",
    "Redis goes on with this Postgres; what was lost is charged",
  ]);
  // Whoever asks once more is not told that anything was charged.
  expect(await adopt(late.pool, late.redis, options)).toEqual([
    "Redis goes on with this Postgres; nothing was lost",
  ]);
  await late.upkeep.look();
  expect(late.holds.fault).toBeNull();
  await charge(late, 200);
  await drained(late);
  expect(await late.holds.standing.credit("org")).toMatchObject({ used: 900n, available: 100n });
  expect(await broken(late)).toEqual(["org: lost 0.0006 credits"]);
});

test("a Postgres that was only started anew is compared and served by at once", async () => {
  const plane = await open({ running: true });
  await makeOrganization(plane.pool, "org", 1_000n);
  await charge(plane, 100);
  await postgres.stop();
  await postgres.start();
  await reconnected(plane);
  await makeOrganization(plane.pool, "another", 10n);
  // Its account is read from the server that was started.
  await (await plane.holds.open(request("another"), 5n)).settle(usage(5));
  await charge(plane, 100);
  await expect
    .poll(() => plane.holds.standing.credit("org").catch(() => null), { timeout: 10_000 })
    .toMatchObject({
      used: 200n,
    });
  await expect.poll(() => rowsOf(plane), { timeout: 10_000 }).toHaveLength(3);
  expect(plane.holds.fault).toBeNull();
  expect(await broken(plane)).toEqual([]);
});

test("Redis and Postgres forget at the same time: what the data plane knows is in the ledger again", async () => {
  const plane = await open();
  await makeOrganization(plane.pool, "org", 1_000n);
  await drained(plane);
  await postgres.save();
  await charge(plane, 600);
  await drained(plane);
  await charge(plane, 20);
  await plane.redis.flushall();
  await rollBack(plane);
  await plane.upkeep.look();
  await plane.upkeep.watch();
  await drained(plane);
  await drained(plane);
  await plane.upkeep.look();
  expect(await rowsOf(plane)).toEqual([20n, 600n]);
  await plane.holds.refresh(["org"]);
  expect(await plane.holds.standing.credit("org")).toMatchObject({ used: 620n });
  expect(await broken(plane)).toEqual([]);
});
