/** Promises of design.md §5 that no other test of the money puts to the proof by themselves, each in its words. */
import { sql } from "slonik";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { MAX_MICROS } from "../../dataplane/billing/credits.ts";
import { operation, shardOf, shardTag, type MeterOperation } from "../../dataplane/billing/holds/shard.ts";
import { encodeRow } from "../../dataplane/billing/ledger/charge-text.ts";
import { usageRow, type UsageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { Plane, makeOrganization, request, usage, type PlaneStores } from "./money-world.ts";
import { openStillPlane } from "./still-plane.ts";
import { freshRedis } from "./stores.ts";

let plane: Plane;
let stores: PlaneStores;
beforeAll(async () => {
  const opened = await openStillPlane();
  ({ plane, stores } = opened);
  return opened.close;
});

test("amounts enter Lua as decimal strings and change only through HINCRBY: not a digit is lost at the largest balance", async () => {
  await makeOrganization(plane.pool, "org_rich", MAX_MICROS);
  const large = MAX_MICROS - 1n;
  const bill = await plane.holds.open(request("org_rich"), large);
  const credit = { granted: MAX_MICROS, used: 0n, held: large, available: 1n };
  expect(await plane.holds.standing.credit("org_rich")).toEqual(credit);
  const small = await plane.holds.open(request("org_rich"), 1n);
  expect(await plane.holds.standing.credit("org_rich")).toEqual({
    ...credit,
    held: MAX_MICROS,
    available: 0n,
  });
  await small.settle(usage(1));
  // Beyond 10^14, where `tostring` of a double in Lua begins to round.
  await bill.settle(usage(123_456_789));
  const used = 123_456_790n;
  const left = { granted: MAX_MICROS, used, held: 0n, available: MAX_MICROS - used };
  expect(await plane.holds.standing.credit("org_rich")).toEqual(left);
  await plane.upkeep.drain();
  expect(await plane.holds.standing.credit("org_rich")).toEqual(left);
});

describe("operations are idempotent by request id: a repeated call changes nothing", () => {
  const row = (id: string, cost: number) => usageRow(request("org_twice", { id }), usage(cost));
  const hold = (id: string): MeterOperation =>
    operation("hold", "org_twice", id, "100", "", "0", "0", "0", "0", "0", "");
  const settle = (id: string) =>
    operation("settle", "org_twice", id, "40", encodeRow(row(id, 40)), "0", "0", "0", "", "1");
  const operations: Readonly<Record<string, (id: string) => readonly MeterOperation[]>> = {
    hold: (id) => [hold(id)],
    advance: (id) => [hold(id), operation("advance", "org_twice", id, "30", "80", "0", "", "0", "")],
    spend: (id) => [hold(id), operation("spend", "org_twice", id, "30", "180", "0", "", "0", "")],
    settle: (id) => [hold(id), settle(id)],
    "settle without a hold": (id) => [settle(id)],
    release: (id) => [hold(id), operation("release", "org_twice", id, "0", "0", "0", "0", "", "1")],
    retake: (id) => [operation("retake", "org_twice", id, "60", "0", "", "0", "")],
  };

  test.each(Object.entries(operations))("%s", async (name, of) => {
    await makeOrganization(plane.pool, "org_twice", 1_000_000n);
    await plane.holds.refresh(["org_twice"]);
    const shard = plane.shardFor("org_twice");
    const id = `req_${name.replaceAll(" ", "_")}`;
    for (const one of of(id)) await shard.run(one, 1_000);
    const once = await plane.redis.hgetall(`${shard.tag}:o:org_twice`);
    const entries = await plane.redis.xlen(`${shard.tag}:usage`);
    const last = of(id).at(-1) ?? operation("");
    await shard.run(last, 1_000);
    expect(await plane.redis.hgetall(`${shard.tag}:o:org_twice`)).toEqual(once);
    expect(await plane.redis.xlen(`${shard.tag}:usage`)).toBe(entries);
  });
});

test("group commit: all operations of one event-loop turn for one shard go as one script call", async () => {
  await makeOrganization(plane.pool, "org_group", 1_000_000n);
  await (await plane.holds.open(request("org_group"), 1n)).release();
  const calls = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await plane.redis.info("commandstats"))?.[1]);
  const before = await calls();
  const bills = await Promise.all(
    Array.from({ length: 100 }, () => plane.holds.open(request("org_group"), 1n)),
  );
  expect((await calls()) - before).toBe(1);
  await Promise.all(bills.map((bill) => bill.settle(usage(1))));
  expect((await calls()) - before).toBe(2);
});

test("partitions are made two months ahead; a default one catches the rest, and the books agree all the same", async () => {
  await makeOrganization(plane.pool, "org_old", 1_000n);
  const partitionOf = (id: string) =>
    plane.pool.oneFirst(sql.type(z.object({ name: z.string() }))`
      select tableoid::regclass::text as name from usage where id = ${id}
    `);
  const now = new Date();
  const inMonths = (months: number) => Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + months, 15);
  for (const months of [0, 1, 2, 3, -60]) {
    const asked = request("org_old", { acceptedAt: inMonths(months) });
    await plane.pool.transaction((transaction) => chargeRows(transaction, [usageRow(asked, usage(10))]));
    const month = new Date(inMonths(months)).toISOString().slice(0, 7).replace("-", "_");
    const expected = months >= 0 && months <= 2 ? `usage_${month}` : "usage_default";
    expect(await partitionOf(asked.id)).toBe(expected);
  }
  await plane.holds.refresh(["org_old"]);
  expect((await plane.holds.standing.credit("org_old")).used).toBe(50n);
  expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
});

test("rows that come again, twice in one call, or final after provisional, are charged once, and new ones beside them", async () => {
  await makeOrganization(plane.pool, "org_again", 1_000n);
  const asked = Array.from({ length: 4 }, () => request("org_again"));
  const row = (index: number, cost: number, provisional = false): UsageRow => {
    const of = asked[index];
    if (of === undefined) throw new Error("no such request");
    return { ...usageRow(of, usage(cost)), provisional };
  };
  const charge = async (...rows: UsageRow[]) => {
    const [account] = await plane.pool.transaction((transaction) => chargeRows(transaction, rows));
    return account?.balance;
  };
  expect(await charge(row(0, 1), row(1, 10))).toBe(989n);
  expect(await charge(row(1, 10), row(2, 100), row(2, 100))).toBe(889n);
  // A provisional row never touches a final one, in whatever order they come.
  expect(await charge(row(0, 5, true), row(3, 7, true))).toBe(882n);
  expect(await charge(row(3, 9, true), row(3, 8), row(3, 9, true))).toBe(881n);
  expect(await charge(row(3, 7, true), row(0, 1))).toBe(881n);
  await plane.holds.refresh(["org_again"]);
  expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
});

test("beyond 1,000,000 undrained entries in a shard: 503, and again admitted when they are fewer", async () => {
  await using own = await freshRedis();
  const behind = await Plane.open({ ...stores, redisUrl: own.url }, { running: false });
  try {
    await makeOrganization(behind.pool, "org_behind", 1_000n);
    await (await behind.holds.open(request("org_behind"), 1n)).release();
    const settled = async () => await (await behind.holds.open(request("org_behind"), 1n)).settle(usage(0));
    await Promise.all([settled(), settled()]);
    const waiting = `${shardTag(shardOf("org_behind"))}:waiting`;
    expect(await behind.redis.get(waiting)).toBe("2");
    await behind.redis.incrby(waiting, 999_997);
    expect((await reconcileLedger(behind.pool, behind.redis)).broken.join()).toMatch(
      /999999 charges are said to wait .*, there are 2/,
    );
    await settled();
    await expect(settled()).rejects.toMatchObject({ code: "unavailable" });
    await behind.redis.decrby(waiting, 999_997);
    await settled();
    expect(await behind.upkeep.drain()).toBe(4);
    expect(await behind.redis.exists(waiting)).toBe(0);
  } finally {
    await behind.vanish();
  }
}, 60_000);

test("a charge writes no index of `accounts`: its updates are HOT, as nothing that they change is indexed", async () => {
  const indexes = await plane.pool.anyFirst(
    sql.type(z.object({ definition: z.string() }))`
      select indexdef as definition from pg_indexes where tablename = 'accounts'
    `,
  );
  expect(indexes).toEqual([expect.stringMatching(/\(organization_id\)$/)]);
});
