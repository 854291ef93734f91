/** Charges that the ledger refuses for ever: they hold up no other, nothing of them is lost, and all of it is seen. */
import { pino } from "pino";
import { sql } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { LedgerWriter } from "../../dataplane/billing/holds/ledger-writer.ts";
import type { MeteredRequest } from "../../dataplane/billing/meter.ts";
import type { LimitedScope } from "../../dataplane/billing/scopes.ts";
import { countDeadLetters } from "../../dataplane/billing/ledger/dead-letters.ts";
import { DeadLetterRetry } from "../../dataplane/billing/ledger/retry-dead-letters.ts";
import { BETWEEN_WORDS, shardOf, shardTag } from "../../dataplane/billing/holds/shard.ts";
import { encodeRow } from "../../dataplane/billing/ledger/charge-text.ts";
import { usageRow, type UsageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { metrics } from "../../dataplane/telemetry/metrics.ts";
import { Plane, makeOrganization, request, usage } from "./money-world.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";

let database: TestDatabase;
let redis: TestStore;
let plane: Plane;
beforeAll(async () => {
  [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
});
afterAll(async () => {
  await redis[Symbol.asyncDispose]();
  await database.drop();
});
beforeEach(async () => {
  plane = await Plane.open(
    { redisUrl: redis.url, postgresUrl: database.url },
    { running: false, rhythm: { staleMs: -1 } },
  );
  await plane.redis.flushall();
  await plane.pool.query(sql.unsafe`
    truncate usage, usage_hourly, usage_daily, dead_letters, accounts, grants, organizations cascade
  `);
  await mend();
  await plane.pool.query(sql.unsafe`alter table usage add constraint no_poison check (upstream <> 'poison')`);
  await makeOrganization(plane.pool, "org", 1_000n);
});
afterEach(async () => {
  await plane.vanish();
});

/** An upstream whose rows `usage` refuses, until an upgrade mends that (`mend`). */
const POISON = "poison";
const charge = (cost: number, upstream = "primary"): UsageRow =>
  usageRow(request("org"), usage(cost, { upstream }));
const ids = () =>
  plane.pool.anyFirst(sql.type(z.object({ id: z.string() }))`select id from usage order by cost_micros`);
const balance = () =>
  plane.pool.oneFirst(sql.type(z.object({ balance: z.bigint() }))`
    select balance_micros as balance from accounts where organization_id = 'org'
  `);
const settled = async (cost: number, upstream = "primary", more: Partial<MeteredRequest> = {}) =>
  await (await plane.holds.open(request("org", more), 100n)).settle(usage(cost, { upstream }));
const log = pino({ level: "silent" });
const stream = `${shardTag(shardOf("org"))}:usage`;
const entry = (cost: string, row: string) => ["org", cost, row].join(BETWEEN_WORDS);
const mend = () => plane.pool.query(sql.unsafe`alter table usage drop constraint if exists no_poison`);

describe("the drainer", () => {
  test("stores the rows beside one that the ledger refuses, and charges that one to its account", async () => {
    for (const cost of [1, 2, 3, 4, 5]) await settled(cost);
    await settled(40, POISON);
    for (const cost of [6, 7]) await settled(cost);
    expect(await plane.upkeep.drain()).toBe(8);
    expect(await ids()).toHaveLength(7);
    expect(await balance()).toBe(1_000n - 68n);
    expect(await plane.holds.standing.credit("org")).toEqual({
      granted: 1_000n,
      used: 68n,
      held: 0n,
      available: 932n,
    });
    expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([
      expect.stringMatching(
        /^req_\w+: a charge of 0\.00004 to org is a dead letter since .*Z, refused by the ledger: new row for relation .* violates check constraint/,
      ),
    ]);
  });

  test("is not held up by more entries that it cannot read than one round takes", async () => {
    const pipeline = plane.redis.pipeline();
    for (let index = 0; index < 1_200; index += 1) {
      pipeline.xadd(stream, "*", "r", entry("0", `(3,${index})`));
    }
    await pipeline.exec();
    await settled(9);
    expect(await plane.upkeep.drain()).toBe(1_201);
    expect(await ids()).toHaveLength(1);
    expect(await plane.redis.xlen(stream)).toBe(0);
    expect((await reconcileLedger(plane.pool, plane.redis)).broken).toHaveLength(51);
  });

  const odd: readonly (readonly [string, (text: string) => string])[] = [
    ["that holds two rows", (text) => `${text},${text}`],
    ["that holds two rows as Postgres writes an array", (text) => `${text}","${text}`],
    ["with a count below zero", (text) => text.replace(",10,0,0,", ",-1,0,0,")],
    ["with a word too many", (text) => text.replace(")", ",0)")],
    ["with a word too few", (text) => text.replace(/,[^,]*\)$/, ")")],
    ["without a count", (text) => text.replace(",10,0,0,", ",,0,0,")],
    ["of another form", (text) => text.replace("(1,", "(2,")],
    ["without an organization", (text) => text.replace(",org,", ",,")],
  ];
  test.each(odd)("takes an entry %s for no row, and stores those beside it", async (_, change) => {
    await settled(5);
    const text = encodeRow(charge(10));
    expect(change(text)).not.toBe(text);
    await plane.redis.xadd(stream, "*", "r", entry("30", change(text)));
    expect(await plane.upkeep.drain()).toBe(2);
    expect(await ids()).toHaveLength(1);
    expect(await countDeadLetters(plane.pool)).toBe(1);
    expect(await balance()).toBe(1_000n - 5n - 30n);
  });

  test("keeps as dead letters what no script of ours wrote for nobody, and lets reconcile go on", async () => {
    for (const text of ["nonsense", "org\x1fmuch\x1f{}"]) await plane.redis.xadd(stream, "*", "r", text);
    await settled(3);
    expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
    expect(await plane.upkeep.drain()).toBe(3);
    expect(await balance()).toBe(997n);
    const letter = await plane.pool.any(sql.type(z.object({ organization_id: z.string().nullable() }))`
      select organization_id from dead_letters
    `);
    expect(letter).toEqual([{ organization_id: null }, { organization_id: null }]);
    const accounts = sql.type(
      z.object({ organization_id: z.string() }),
    )`select organization_id from accounts`;
    expect(await plane.pool.any(accounts)).toEqual([{ organization_id: "org" }]);
  });

  test("charges an entry that it cannot read once, however often it comes", async () => {
    for (let index = 0; index < 2; index += 1) {
      await plane.redis.xadd(stream, "*", "r", entry("30", "(2,later)"));
      await plane.upkeep.drain();
    }
    expect(await balance()).toBe(970n);
  });
});

describe("the ledger writer", () => {
  test("stores six hundred rows that stand behind one that the ledger refuses", async () => {
    const stored: string[] = [];
    const writer = new LedgerWriter({
      pool: plane.pool,
      log,
      settleInRedis: async () => false,
      onSettled: () => expect.unreachable(),
      onStored: (rows) => stored.push(...rows.map(({ id }) => id)),
    });
    const rows = [charge(1, POISON), ...Array.from({ length: 600 }, () => charge(1))];
    await Promise.all(rows.map((row) => writer.store(row)));
    expect(stored).toHaveLength(601);
    expect(await ids()).toHaveLength(600);
    expect(await balance()).toBe(1_000n - 601n);
  });
});

describe("exactly once", () => {
  const chargeAll = (...rows: UsageRow[]) =>
    plane.pool.transaction((transaction) => chargeRows(transaction, rows));

  test("a refused row that comes again changes nothing", async () => {
    const row = charge(10, POISON);
    for (let index = 0; index < 3; index += 1) await chargeAll(row, charge(1));
    expect(await balance()).toBe(1_000n - 10n - 3n);
  });

  test("a final row takes the place of a provisional one, whichever of the two is refused", async () => {
    const asked = [request("org"), request("org"), request("org")] as const;
    const provisional = (index: 0 | 1 | 2, upstream: string) =>
      usageRow(asked[index], { ...usage(5), upstream }, true);
    await chargeAll(provisional(0, POISON), provisional(1, "primary"), provisional(2, POISON));
    expect(await balance()).toBe(985n);
    const final = (index: 0 | 1 | 2, upstream: string) => usageRow(asked[index], usage(20, { upstream }));
    await chargeAll(final(0, "primary"), final(1, POISON), final(2, POISON));
    expect(await balance()).toBe(940n);
    // Late, and worth nothing beside the final rows.
    await chargeAll(provisional(0, "primary"), provisional(1, "primary"), provisional(2, POISON));
    expect(await balance()).toBe(940n);
    expect(await ids()).toEqual([asked[0].id]);
    const { broken } = await reconcileLedger(plane.pool, plane.redis);
    expect(new Set(broken.map((line) => line.split(":")[0]))).toEqual(new Set([asked[1].id, asked[2].id]));
  });

  test("an account that would overflow keeps its balance, and the charge is named as nobody's", async () => {
    await plane.pool.query(sql.unsafe`
      update accounts set balance_micros = -9223372036854775807 where organization_id = 'org'
    `);
    await chargeAll(charge(10));
    expect(await balance()).toBe(-9_223_372_036_854_775_807n);
    expect((await reconcileLedger(plane.pool, plane.redis)).broken).toContainEqual(
      expect.stringMatching(/^sha256:\w+: a charge of 0 to nobody is a dead letter/),
    );
  });
});

test("a dead letter is counted, tried again, and becomes a row when the ledger takes it", async () => {
  const limits: LimitedScope[] = [
    { kind: "key", id: "apikey_test", limits: { credits: { amountMicros: "500", per: "month" } } },
  ];
  const spent = async () => (await plane.holds.standing.limits("org", [limits]))[0]?.[0]?.spent;
  await settled(3, "primary", { limits });
  await settled(40, POISON, { limits });
  await plane.upkeep.drain();
  expect(await spent()).toBe(3n);
  const retry = new DeadLetterRetry(plane.pool, log, (id) => plane.holds.readScopesAgain(id));
  await retry.look();
  expect((await metrics.deadLetters.get()).values).toEqual([{ value: 1, labels: {} }]);
  await mend();
  await retry.look();
  expect((await metrics.deadLetters.get()).values).toEqual([{ value: 0, labels: {} }]);
  expect(await ids()).toHaveLength(2);
  expect(await balance()).toBe(957n);
  // Its key's limit has it as well, though no request asked for that.
  expect(await spent()).toBe(43n);
  await plane.holds.refresh(["org"]);
  expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
});

test("a Postgres that is busy or away is no refusal: the rows stay where they are", async () => {
  const pool = plane.pool;
  await pool.transaction(async (other) => {
    await other.query(sql.unsafe`select 1 from accounts for update`);
    const waiting = pool.transaction(async (transaction) => {
      await transaction.query(sql.unsafe`set local lock_timeout = 50`);
      return await chargeRows(transaction, [charge(10)]);
    });
    await expect(waiting).rejects.toThrow("lock timeout");
  });
  expect(await countDeadLetters(pool)).toBe(0);
  expect(await balance()).toBe(1_000n);
});
