import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { applyGrant, bumpKeyEpoch } from "../../dataplane/billing/ledger/accounts.ts";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { shardOf, shardTag } from "../../dataplane/billing/holds/shard.ts";
import { pricesAt } from "../../dataplane/billing/prices/price.ts";
import type { UsageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { costReport } from "../../dataplane/reports/cost-report.ts";
import { messagesUsage } from "../../dataplane/reports/messages-usage.ts";
import { refusedFor } from "../fakes/refused-requests.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";
import { Plane, makeOrganization, observed, plainPrices, request, usage } from "./money-world.ts";

let database: TestDatabase;
let redis: TestStore;
let plane: Plane;
beforeAll(async () => {
  database = await freshDatabase();
  redis = await freshRedis();
  const limits = { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null };
  plane = await Plane.open(
    { redisUrl: redis.url, postgresUrl: database.url },
    {
      limits: (id) =>
        ({
          org_limits_c: { ...limits, concurrentRequests: 2 },
          org_limits_r: { ...limits, requestsPerMinute: 3 },
          org_limits_t: { ...limits, tokensPerMinute: 1_000 },
        })[id],
      recheckKey: async (keyId) =>
        keyId === "valid" ? { keyEpoch: 2, projectId: "proj_test", limits: [] } : null,
    },
  );
});
afterAll(async () => {
  await plane.close();
  await redis[Symbol.asyncDispose]();
  await database.drop();
});

const code = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  return error instanceof ApiError ? error.code : error === null ? "null" : String(error);
};

test("a request is held, charged once and shown in the ledger", async () => {
  await makeOrganization(plane.pool, "org_one", 1_000n);
  const bill = await plane.holds.open(request("org_one"), 300n);
  expect(await plane.holds.standing.credit("org_one")).toEqual({
    granted: 1_000n,
    used: 0n,
    held: 300n,
    available: 700n,
  });
  await bill.settle(usage(120));
  await bill.settle(usage(999));
  expect(await plane.holds.standing.credit("org_one")).toEqual({
    granted: 1_000n,
    used: 120n,
    held: 0n,
    available: 880n,
  });
  await expect
    .poll(() =>
      plane.pool.oneFirst(
        sql.type(z.object({ balance: z.bigint() }))`
          select balance_micros as balance from accounts where organization_id = 'org_one'
        `,
      ),
    )
    .toBe(880n);
  expect(await plane.holds.standing.credit("org_one")).toEqual({
    granted: 1_000n,
    used: 120n,
    held: 0n,
    available: 880n,
  });
});

test("rule 1.8: the first iteration holds what there is, a second request waits and is told that credit is reserved", async () => {
  await makeOrganization(plane.pool, "org_small", 100n);
  const bill = await plane.holds.open(request("org_small"), 5_000n);
  const waited = performance.now();
  expect(await code(plane.holds.open(request("org_small"), 1n))).toBe("rate_limited");
  expect(performance.now() - waited).toBeGreaterThan(1_800);
  expect(await bill.advance(observed(40), 61n)).toBe(false);
  expect(await bill.advance(observed(40), 60n)).toBe(true);
  await bill.settle(usage(100));
  expect(await code(plane.holds.open(request("org_small"), 1n))).toBe("insufficient_credit");
});

test("rule 7.10: what was spent is held at once, and what is left beyond it and what others hold is told", async () => {
  await makeOrganization(plane.pool, "org_spend", 1_000n);
  const credit = () => plane.holds.standing.credit("org_spend");
  const bill = await plane.holds.open(request("org_spend"), 100n);
  const other = await plane.holds.open(request("org_spend"), 200n);
  // Within its hold, which stays.
  expect(await bill.spend(observed(40), 0n)).toBe(760n);
  expect(await credit()).toMatchObject({ held: 300n });
  // Beyond it.
  expect(await bill.spend(observed(150), 0n)).toBe(650n);
  expect(await credit()).toMatchObject({ held: 350n });
  // With what is to come.
  expect(await bill.spend(observed(150), 400n)).toBe(650n);
  expect(await credit()).toMatchObject({ held: 750n, available: 250n });
  // More than there is: the hold is what was spent, and nothing is left.
  expect(await bill.spend(observed(900), 400n)).toBe(-100n);
  expect(await credit()).toMatchObject({ held: 1_100n, available: 0n });
  expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
  await bill.settle(usage(900));
  expect(await bill.spend(observed(950), 0n)).toBe(0n);
  await other.release();
  expect(await credit()).toMatchObject({ used: 900n, held: 0n });
  expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
});

test("a shutdown waits for requests that hold credit, as those whose clients have left, but not for ever", async () => {
  await makeOrganization(plane.pool, "org_idle", 1_000n);
  await plane.holds.idle(5_000);
  const bill = await plane.holds.open(request("org_idle"), 100n);
  let idle = false;
  const waiting = plane.holds.idle(20_000).then(() => (idle = true));
  await plane.holds.idle(50);
  expect([idle, plane.holds.running]).toEqual([false, 1]);
  await bill.settle(usage(10));
  await waiting;
  expect(plane.holds.running).toBe(0);
});

test("rule 7.10: what was spent is charged when its owner dies", async () => {
  await makeOrganization(plane.pool, "org_spent", 1_000n);
  const stores = { redisUrl: redis.url, postgresUrl: database.url };
  const mine = await Plane.open(stores, { running: false });
  await (await mine.holds.open(request("org_spent"), 100n)).spend(observed(40), 0n);
  await mine.vanish();
  const sweeper = await Plane.open(stores, { running: false, rhythm: { staleMs: 0 } });
  await sweeper.upkeep.sweep();
  await sweeper.close();
  await plane.drained();
  expect(await plane.holds.standing.credit("org_spent")).toMatchObject({ used: 40n, held: 0n });
});

test("rule 1.8: credit that one request gives back goes first to those that hold less than their estimates", async () => {
  await makeOrganization(plane.pool, "org_short", 100n);
  const cheap = await plane.holds.open(request("org_short"), 90n);
  const dear = await plane.holds.open(request("org_short"), 60n);
  expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
  await cheap.settle(usage(50));
  // 50 are left, 10 of them held, and the other 40 belong to the 50 that are missing there.
  expect(await code(plane.holds.open(request("org_short"), 60n))).toBe("rate_limited");
  await dear.settle(usage(10));
  await (await plane.holds.open(request("org_short"), 60n)).settle(usage(40));
});

test("a waiting request runs as soon as another one ends", async () => {
  await makeOrganization(plane.pool, "org_line", 100n);
  const bill = await plane.holds.open(request("org_line"), 100n);
  const second = plane.holds.open(request("org_line"), 10n);
  await bill.release();
  const held = await second;
  await held.settle(usage(1));
  expect(await plane.holds.standing.credit("org_line")).toEqual({
    granted: 100n,
    used: 1n,
    held: 0n,
    available: 99n,
  });
});

test("a grant that only the ledger knows of serves all who ask in the same moment", async () => {
  await makeOrganization(plane.pool, "org_moment", 0n);
  await plane.holds.refresh(["org_moment"]);
  await plane.pool.transaction((transaction) =>
    applyGrant(transaction, {
      organizationId: "org_moment",
      name: "late",
      amount: 1_000n,
      source: "command",
    }),
  );
  const bills = await Promise.all([1, 2, 3].map(() => plane.holds.open(request("org_moment"), 10n)));
  expect(bills.map(({ amount }) => amount)).toEqual([10n, 10n, 10n]);
  for (const bill of bills) await bill.release();
});

test("what changed an account a moment before the last data plane ends is told to Redis by its end", async () => {
  const [own, store] = [await freshDatabase(), await freshRedis()];
  // Its next look for changed accounts would come long after its end.
  const rhythm = { accountsMs: 600_000 };
  const last = await Plane.open({ redisUrl: store.url, postgresUrl: own.url }, { rhythm });
  await makeOrganization(last.pool, "org_last", 100n);
  const known = () => last.redis.hget(`${last.shardFor("org_last").tag}:o:org_last`, "base");
  await (await last.holds.open(request("org_last"), 10n)).release();
  expect(await known()).toBe("100");
  // It leads.
  await expect.poll(() => last.redis.get(`${last.holds.shards[0]?.tag ?? ""}:leader`)).not.toBeNull();
  await last.upkeep.stop();
  await last.pool.transaction((transaction) =>
    applyGrant(transaction, { organizationId: "org_last", name: "more", amount: 7n, source: "command" }),
  );
  await last.upkeep.tellLast();
  expect(await known()).toBe("107");
  await last.close();
  await store[Symbol.asyncDispose]();
  await own.drop();
});

test("a grant makes an empty organization serve", async () => {
  await makeOrganization(plane.pool, "org_poor", 0n);
  expect(await code(plane.holds.open(request("org_poor"), 1n))).toBe("insufficient_credit");
  await plane.pool.transaction((transaction) =>
    applyGrant(transaction, { organizationId: "org_poor", name: "more", amount: 50n, source: "command" }),
  );
  // Asked of the ledger at most once a second; nobody told Redis.
  await expect.poll(() => code(plane.holds.open(request("org_poor"), 1n)), { timeout: 3_000 }).toBe("null");
});

test("an organization that the ledger does not know has no credit", async () => {
  expect(await code(plane.holds.open(request("org_nowhere"), 1n))).toBe("unavailable");
});

describe("limits of an organization", () => {
  test("concurrent requests beyond the limit are refused, and run when others ended", async () => {
    await makeOrganization(plane.pool, "org_limits_c", 1_000n);
    const bills = [
      await plane.holds.open(request("org_limits_c"), 1n),
      await plane.holds.open(request("org_limits_c"), 1n),
    ];
    expect(await code(plane.holds.open(request("org_limits_c"), 1n))).toBe("rate_limited");
    await bills[0]?.settle(usage(1));
    const third = await plane.holds.open(request("org_limits_c"), 1n);
    await third.release();
    await bills[1]?.release();
    // Batch items are paced by their workers.
    const items = await Promise.all(
      [1, 2, 3].map(() =>
        plane.holds
          .forItem("claim_1", () => {})
          .open(request("org_limits_c", { endpoint: "batch", batchId: "b" }), 1n),
      ),
    );
    for (const item of items) await item.release();
  });

  test("requests a minute: the headers of the dialect count down, then 429 with retry-after", async () => {
    await makeOrganization(plane.pool, "org_limits_r", 1_000n);
    const open = (endpoint: "messages" | "chat") =>
      plane.holds.open(request("org_limits_r", { endpoint }), 1n);
    expect((await open("chat")).headers).toMatchObject({
      "x-ratelimit-limit-requests": "3",
      "x-ratelimit-remaining-requests": "2",
      "x-ratelimit-reset-requests": "20s",
    });
    expect((await open("messages")).headers).toMatchObject({
      "anthropic-ratelimit-requests-limit": "3",
      "anthropic-ratelimit-requests-remaining": "1",
    });
    await open("chat");
    const error = await open("chat").catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "rate_limited", retryAfterSeconds: 20 });
    expect(error).toMatchObject({ headers: { "x-ratelimit-remaining-requests": "0" } });
  });

  test("tokens a minute: the estimate is taken at first, what was really used afterwards", async () => {
    await makeOrganization(plane.pool, "org_limits_t", 1_000_000n);
    const open = (inputTokens: number) => plane.holds.open(request("org_limits_t", { inputTokens }), 1n);
    const first = await open(100);
    expect(first.headers).toMatchObject({ "x-ratelimit-remaining-tokens": "900" });
    await first.settle(usage(1_500));
    const error = await open(10).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "tokens_rate_limited", retryAfterSeconds: 31 });
  });
});

test("what a hold refuses is counted by its reason, but not of a batch item", async () => {
  const reasons = ["reserved", "credit", "limit"];
  const counts = () => Promise.all(reasons.map(refusedFor));
  const [reserved = 0, credit = 0, limit = 0] = await counts();
  await makeOrganization(plane.pool, "org_counted", 100n);
  const bill = await plane.holds.open(request("org_counted"), 100n);
  const item = () =>
    plane.holds
      .forItem("claim_1", () => {})
      .open(request("org_counted", { endpoint: "batch", batchId: "b" }), 1n);
  const open = () => plane.holds.open(request("org_counted"), 1n);
  expect(await Promise.all([open(), item()].map(code))).toEqual(["rate_limited", "rate_limited"]);
  expect(await counts()).toEqual([reserved + 1, credit, limit]);
  await bill.settle(usage(100));
  expect([await code(open()), await code(item())]).toEqual(["insufficient_credit", "insufficient_credit"]);
  expect(await counts()).toEqual([reserved + 1, credit + 1, limit]);
  await makeOrganization(plane.pool, "org_limits_c", 1_000n);
  const three = await Promise.allSettled([1, 2, 3].map(() => plane.holds.open(request("org_limits_c"), 1n)));
  expect(three.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"]);
  for (const one of three) if (one.status === "fulfilled") await one.value.release();
  expect(await counts()).toEqual([reserved + 1, credit + 1, limit + 1]);
});

describe("keys", () => {
  test("a key that was revoked since it was looked up is refused by the hold, another one looked up anew", async () => {
    await makeOrganization(plane.pool, "org_keys", 1_000n);
    const bill = await plane.holds.open(request("org_keys"), 1n);
    await plane.pool.transaction((transaction) => bumpKeyEpoch(transaction, "org_keys"));
    await plane.holds.refresh(["org_keys"]);
    expect(await code(plane.holds.open(request("org_keys", { keyId: "revoked" }), 1n))).toBe(
      "authentication",
    );
    const other = await plane.holds.open(request("org_keys", { keyId: "valid" }), 1n);
    await other.release();
    // What runs already is finished and paid.
    await bill.settle(usage(5));
  });
});

test("a new request does not stand behind the heartbeats of all the running ones", async () => {
  await makeOrganization(plane.pool, "org_crowd", 10_000n);
  const owner = await Plane.open({ redisUrl: redis.url, postgresUrl: database.url }, { running: false });
  const crowd = await Promise.all(
    Array.from({ length: 3_000 }, () => owner.holds.open(request("org_crowd"), 1n)),
  );
  const order: string[] = [];
  const beaten = owner.holds.heartbeat().then(() => order.push("all beaten"));
  const bill = await owner.holds.open(request("org_crowd"), 1n);
  order.push("held");
  await beaten;
  expect(order).toEqual(["held", "all beaten"]);
  await Promise.all([bill, ...crowd].map((one) => one.release()));
  await owner.close();
});

describe("dead owners", () => {
  const swept = { running: false, rhythm: { staleMs: -1 } } as const;
  const rows = (organizationId: string) =>
    plane.pool.any(sql.type(z.object({ cost: z.bigint(), provisional: z.boolean() }))`
      select cost_micros as cost, provisional from usage where organization_id = ${organizationId}
    `);

  test("what a dead owner had seen is charged provisionally, and its own row replaces it when it is back", async () => {
    await makeOrganization(plane.pool, "org_late", 1_000n);
    const stores = { redisUrl: redis.url, postgresUrl: database.url };
    const owner = await Plane.open(stores, swept);
    const bill = await owner.holds.open(request("org_late"), 300n);
    bill.observe(observed(70));
    await owner.holds.heartbeat();
    await owner.upkeep.sweep();
    await owner.drained();
    expect(await rows("org_late")).toEqual([{ cost: 70n, provisional: true }]);
    await bill.settle(usage(90));
    await owner.drained();
    expect(await rows("org_late")).toEqual([{ cost: 90n, provisional: false }]);
    const credit = { granted: 1_000n, used: 90n, held: 0n, available: 910n };
    expect(await owner.holds.standing.credit("org_late")).toEqual(credit);
    await owner.close();
  });

  test("rules 10.2, 10.4: the tier that came late replaces the one seen, at the prices of acceptance, in every sum", async () => {
    const changed = Date.parse("2027-01-01T00:00:00Z");
    const prices = pricesAt(
      {
        ...plainPrices,
        serviceTiers: [
          { name: "fast", multiplier: "6" },
          { name: "us", multiplier: "1.5" },
        ],
        changes: [{ ...plainPrices, from: changed, input: "100" }],
      },
      changed - 1,
    );
    await makeOrganization(plane.pool, "org_tiers", 10_000n);
    const stores = { redisUrl: redis.url, postgresUrl: database.url };
    const owner = await Plane.open(stores, swept);
    const asked = request("org_tiers", { prices, acceptedAt: changed - 1, contextTokens: 1_000_000 });
    const bill = await owner.holds.open(asked, 1_000n);
    const told = (input: number, charged: string[]) => ({
      ...usage(input),
      tokens: { ...usage(input).tokens, tiers: { charged, doubtful: [] } },
    });
    bill.observe(told(70, ["us"]));
    await owner.holds.heartbeat();
    await owner.upkeep.sweep();
    await owner.drained();
    const shown = async () => {
      const range = { starting_at: "2026-12-31", ending_at: "2027-01-01" };
      const query = { ...range, group_by: "service_tier,context_window" };
      const used = await messagesUsage(plane.pool, "org_tiers", query, changed);
      const costs = await costReport(plane.pool, "org_tiers", { ...range, group_by: "description" }, changed);
      const rows = [
        ...used.data.flatMap(({ results }) => [...results]),
        ...Array.from(costs.results, ({ description, credits, service_tier }) => ({
          description,
          credits,
          service_tier,
        })),
      ];
      return JSON.parse(JSON.stringify(rows)) as unknown;
    };
    const line = (input: number, tier: string, credits: string) => [
      expect.objectContaining({
        uncached_input_tokens: input,
        service_tier: tier,
        context_window: 1_000_000,
      }),
      { description: `model, ${tier}, uncached input tokens`, credits, service_tier: tier },
    ];
    expect(await shown()).toEqual(line(70, "us", "0.000105"));
    // The owner is back, long after the prices changed.
    await bill.settle(told(90, ["fast", "us"]));
    await owner.drained();
    expect(await shown()).toEqual(line(90, "fast+us", "0.00081"));
    expect(await owner.holds.standing.credit("org_tiers")).toMatchObject({ used: 810n, held: 0n });
    await owner.close();
  });

  test("the hold of an owner that saw nothing, or of a batch item, is given back", async () => {
    await makeOrganization(plane.pool, "org_dead", 1_000n);
    const owner = await Plane.open({ redisUrl: redis.url, postgresUrl: database.url }, swept);
    await owner.holds.open(request("org_dead"), 300n);
    const item = await owner.holds
      .forItem("claim_1", () => {})
      .open(request("org_dead", { endpoint: "batch", batchId: "b" }), 300n);
    item.observe(observed(70));
    await owner.holds.heartbeat();
    await owner.upkeep.sweep();
    await owner.drained();
    expect(await rows("org_dead")).toEqual([]);
    expect(await owner.holds.standing.credit("org_dead")).toMatchObject({ used: 0n, held: 0n });
    await owner.vanish();
  });
});

test("a batch item is charged in the transaction that stores its result", async () => {
  await makeOrganization(plane.pool, "org_item", 1_000n);
  const settled: UsageRow[] = [];
  const meter = plane.holds.forItem("claim_1", (row) => settled.push(row));
  const bill = await meter.open(request("org_item", { endpoint: "batch", batchId: "batch_1" }), 300n);
  await bill.settle(usage(120));
  expect(await plane.holds.standing.credit("org_item")).toMatchObject({ used: 0n, held: 300n });
  const accounts = await plane.pool.transaction((transaction) => chargeRows(transaction, settled));
  plane.holds.charges.ledgerCharged(settled, accounts);
  expect(await plane.holds.standing.credit("org_item")).toEqual({
    granted: 1_000n,
    used: 120n,
    held: 0n,
    available: 880n,
  });
});

test("an item that runs twice in one process, as after a lease that ran out, is charged once and holds nothing", async () => {
  await makeOrganization(plane.pool, "org_twice", 1_000n);
  const before = plane.holds.running;
  const asked = request("org_twice", { endpoint: "batch", batchId: "batch_2" });
  const settled: (readonly [UsageRow, () => Promise<void>])[] = [];
  const run = (claim: string) => plane.holds.forItem(claim, (...row) => settled.push(row)).open(asked, 300n);
  const [first, second] = [await run("claim_1"), await run("claim_2")];
  expect(plane.holds.running).toBe(before + 2);
  expect(await plane.holds.standing.credit("org_twice")).toMatchObject({ held: 600n, available: 400n });
  await second.settle(usage(120));
  await first.settle(usage(120));
  // The second run's line was stored first; the other one turns out not to be wanted.
  const [[stored], [, giveBack]] = settled as [
    [UsageRow, () => Promise<void>],
    [UsageRow, () => Promise<void>],
  ];
  const accounts = await plane.pool.transaction((transaction) => chargeRows(transaction, [stored]));
  await giveBack();
  // What the late run gives back is its own.
  expect(await plane.holds.standing.credit("org_twice")).toMatchObject({ held: 300n });
  plane.holds.charges.ledgerCharged([stored], accounts);
  expect(plane.holds.running).toBe(before);
  const credit = { granted: 1_000n, used: 120n, held: 0n, available: 880n };
  await expect.poll(() => plane.holds.standing.credit("org_twice")).toEqual(credit);
});

test("reconcile is exact beside running data planes, and says what is not", async () => {
  expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
  await makeOrganization(plane.pool, "org_broken", 10n);
  await plane.pool.query(
    sql.unsafe`update accounts set balance_micros = 11 where organization_id = 'org_broken'`,
  );
  await plane.pool.query(sql.unsafe`
    update usage_hourly set input_tokens = input_tokens + 1 where organization_id = 'org_item'
  `);
  const tag = shardTag(shardOf("org_item"));
  await plane.redis.hincrby(`${tag}:o:org_item`, "held", 5);
  const { broken } = await reconcileLedger(plane.pool, plane.redis);
  expect(broken).toEqual([
    "org_broken: granted 0.00001 less used 0 is 0.00001, the account says 0.000011",
    expect.stringMatching(/^org_item: the sums of .* for model are not those of its rows$/),
    "org_item: held is 5, its holds sum to 0",
  ]);
});

test("reconcile does not keep Redis busy with what has gathered while the ledger was away, and says so", async () => {
  const [own, store] = [await freshDatabase(), await freshRedis()];
  const idle = await Plane.open({ redisUrl: store.url, postgresUrl: own.url }, { running: false });
  await makeOrganization(idle.pool, "org_away", 1_000n);
  // As many entries as may hold so many charges.
  for (let entry = 0; entry < 80; entry += 1)
    await (await idle.holds.open(request("org_away"), 10n)).settle(usage(3));
  const { tag } = idle.shardFor("org_away");
  const waits = /^shard \d+: 20001 charges wait for the ledger, too many to be compared/;
  await idle.redis.set(`${tag}:waiting`, "20001");
  expect((await reconcileLedger(idle.pool, idle.redis)).broken).toEqual([expect.stringMatching(waits)]);
  // As soon as few are left it goes on.
  const found = reconcileLedger(idle.pool, idle.redis);
  await sleep(1_000);
  await idle.redis.set(`${tag}:waiting`, "80");
  expect((await found).broken).toEqual([]);
  await idle.close();
  await store[Symbol.asyncDispose]();
  await own.drop();
});
