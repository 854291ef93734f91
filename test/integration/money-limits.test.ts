/** Limits of keys and projects in the meter (rules 9.1 to 9.3, 9.6), on real stores. */
import { sql } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { bumpKeyEpoch } from "../../dataplane/billing/ledger/accounts.ts";
import { chargeAll, chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { readEntries } from "../../dataplane/billing/holds/drain.ts";
import type { CurrentKey } from "../../dataplane/billing/holds/held-bill.ts";
import type { MeteredRequest } from "../../dataplane/billing/meter.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import type { LimitedScope } from "../../dataplane/billing/scopes.ts";
import { shardOf, shardTag } from "../../dataplane/billing/holds/shard.ts";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import type { LimitPeriod, Limits } from "../../dataplane/config/schema.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { withinOneDay } from "../fakes/one-day.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";
import { Plane, makeOrganization, observed, request, usage } from "./money-world.ts";

let database: TestDatabase;
let redis: TestStore;
let plane: Plane;
/** Where a request waits for room until there is some; on `plane` soon nothing is waited for. */
let second: Plane;
/** Keys as they are now, by their ids. */
const keys = new Map<string, CurrentKey>();
beforeAll(async () => {
  database = await freshDatabase();
  redis = await freshRedis();
  const stores = { redisUrl: redis.url, postgresUrl: database.url };
  const options = {
    recheckKey: async (id: string) => keys.get(id) ?? null,
    limitsOf: async (id: string) => keys.get(id) ?? { limits: [], keyEpoch: 0 },
  };
  [plane, second] = await Promise.all([
    Plane.open(stores, { ...options, waitMs: 600 }),
    Plane.open(stores, { ...options, waitMs: 60_000 }),
  ]);
});
afterAll(async () => {
  await Promise.all([plane.close(), second.close()]);
  await redis[Symbol.asyncDispose]();
  await database.drop();
});
// A limit begins anew between two days.
beforeEach(() => withinOneDay(20_000));

const credits = (amount: number, per: LimitPeriod = "month"): Limits => ({
  credits: { amountMicros: String(amount), per },
});
const key = (id: string, limits: Limits): LimitedScope => ({ kind: "key", id, limits });
const project = (id: string, limits: Limits): LimitedScope => ({ kind: "project", id, limits });

/** An organization of its own, and requests of its keys. */
async function tenant(name: string, credit = 1_000_000n) {
  const organizationId = `org_${name}`;
  await makeOrganization(plane.pool, organizationId, credit);
  const asked = (limits: readonly LimitedScope[], more: Partial<MeteredRequest> = {}) =>
    request(organizationId, {
      keyId: limits.find(({ kind }) => kind === "key")?.id ?? `apikey_${name}`,
      projectId: limits.find(({ kind }) => kind === "project")?.id ?? `proj_${name}`,
      limits,
      ...more,
    });
  const standing = async (scopes: readonly LimitedScope[], at = plane) =>
    (await at.holds.standing.limits(organizationId, [scopes]))[0]?.map(({ spent, held }) => [
      Number(spent),
      Number(held),
    ]);
  return { organizationId, asked, standing };
}

async function refusal(work: Promise<unknown>): Promise<ApiError> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof ApiError)) throw new Error(`no refusal but ${String(error)}`);
  return error;
}
const codeOf = async (work: Promise<unknown>) => (await refusal(work)).code;
const reconciled = async () => (await reconcileLedger(plane.pool, plane.redis)).broken;

test("rule 9.1: a limit ends at most one request above, on every pod, and is no credit of the organization's", async () => {
  const { asked, standing, organizationId } = await tenant("one");
  const scopes = [key("apikey_one", credits(100))];
  const bill = await plane.holds.open(asked(scopes), 60n);
  const other = await second.holds.open(asked(scopes), 60n);
  expect([bill.amount, other.amount]).toEqual([60n, 40n]);
  // What is left is held by others: it waits, then 429.
  const waits = await refusal(plane.holds.open(asked(scopes), 1n));
  expect([waits.code, waits.message]).toEqual(["rate_limited", expect.stringContaining("this key")]);
  await Promise.all([bill.settle(usage(60)), other.settle(usage(60))]);
  const spent = await refusal(second.holds.open(asked(scopes), 1n));
  expect([spent.code, spent.kind.status, spent.retry]).toEqual(["key_limit_reached", 402, false]);
  expect(spent.message).not.toContain("Credit balance is too low");
  expect(spent.message).toContain("It begins anew at");
  expect(await standing(scopes)).toEqual([[120, 0]]);
  expect(await plane.holds.standing.credit(organizationId)).toMatchObject({ used: 120n, held: 0n });
  // Another key of the organization goes on.
  await (await plane.holds.open(asked([key("apikey_other", credits(100))]), 10n)).release();
});

describe("stores of their own", () => {
  const scopes = [key("apikey_late", credits(100))];
  const asked = () => request("org_late", { keyId: "apikey_late", limits: scopes });
  let own: TestDatabase;
  let server: TestStore;
  /** Nothing is drained unless it is said. */
  let idle: Plane;
  beforeEach(async () => {
    [own, server] = await Promise.all([freshDatabase(), freshRedis()]);
    idle = await Plane.open({ redisUrl: server.url, postgresUrl: own.url }, { running: false, waitMs: 100 });
  });
  afterEach(async () => {
    await idle.close();
    await server[Symbol.asyncDispose]();
    await own.drop();
  });

  test("charges of others that waited for the ledger keep nobody waiting once it has them", async () => {
    const neighbour = Array.from({ length: 1_000 }, (_, n) => `org_neighbour${n}`).find(
      (id) => shardOf(id) === shardOf("org_late"),
    );
    for (const id of ["org_late", neighbour ?? ""]) await makeOrganization(idle.pool, id, 1_000n);
    await (await idle.holds.open(request(neighbour ?? ""), 10n)).settle(usage(5));
    // Redis knows nothing of its account yet, nor whose that charge is.
    expect(await codeOf(idle.holds.open(asked(), 10n))).toBe("rate_limited");
    await idle.upkeep.drain();
    await (await idle.holds.open(asked(), 10n)).settle(usage(7));
    await idle.upkeep.drain();
    await server.kill();
    // Without Redis the ledger tells what is spent: a key that was just made must be shown.
    expect(await idle.holds.standing.limits("org_late", [scopes])).toMatchObject([[{ spent: 7n, held: 0n }]]);
  });

  test("rule 1.8: while a drainer that died has told Redis nothing, what may be counted twice is no spent credit", async () => {
    await makeOrganization(idle.pool, "org_twice", 100n);
    const loop = await idle.holds.open(request("org_twice"), 10n);
    await (await idle.holds.open(request("org_twice"), 60n)).settle(usage(60));
    for (const shard of idle.holds.shards) {
      const charges = (await readEntries(idle.redis, shard)).flatMap((entry) => entry.charges);
      await idle.pool.transaction((transaction) => chargeAll(transaction, charges));
    }
    // As the look for changed accounts, or a grant: 40 are left in the ledger, and 60 of the others seem undrained.
    await idle.holds.refresh(["org_twice"]);
    expect(await codeOf(idle.holds.open(request("org_twice"), 10n))).toBe("rate_limited");
    await expect(
      idle.holds.preflight.credit({ ...request("org_twice"), kind: "inference", keyEpoch: 1 }),
    ).resolves.toBeUndefined();
    // A tool loop goes on when the next drainer has said it.
    const next = loop.advance(observed(5), 20n);
    await idle.upkeep.drain();
    expect(await next).toBe(true);
    await (await idle.holds.open(request("org_twice"), 10n)).settle(usage(10));
    await loop.settle(usage(25));
    expect(await idle.holds.standing.credit("org_twice")).toMatchObject({ used: 95n, available: 5n });
  });
});

test("the project's limit is shared by its keys, both hold, and one that is held keeps no other key waiting", async () => {
  const { asked, standing } = await tenant("shared");
  const shared = project("proj_shared", credits(100));
  const [a, b] = [
    [key("apikey_a", credits(1_000)), shared],
    [key("apikey_b", credits(30)), shared],
  ] as const;
  const bill = await second.holds.open(asked(a), 80n);
  const small = await second.holds.open(asked(b), 50n);
  expect(small.amount).toBe(20n);
  const waiting = second.holds.open(asked(a), 10n).catch((error: unknown) => error);
  await (await second.holds.open(asked([key("apikey_free", credits(50))]), 10n)).release();
  await small.settle(usage(5));
  // It goes on as soon as there is room.
  const went = await waiting;
  expect(went).not.toBeInstanceOf(Error);
  await (went as typeof bill).release();
  await bill.settle(usage(96));
  expect(await standing(b)).toEqual([
    [5, 0],
    [101, 0],
  ]);
  expect(await codeOf(plane.holds.open(asked(b), 1n))).toBe("project_limit_reached");
});

test("rule 9.2: each window counts what was accepted in it, also when it ends later", async () => {
  const { asked, standing } = await tenant("windows");
  const day = 86_400_000;
  const today = Math.floor(Date.now() / day) * day;
  const scopes = [key("apikey_windows", credits(100, "day"))];
  const yesterday = await plane.holds.open(asked(scopes, { acceptedAt: today - 1 }), 70n);
  const now = await plane.holds.open(asked(scopes, { acceptedAt: today }), 100n);
  expect(now.amount).toBe(100n);
  await now.settle(usage(30));
  await yesterday.settle(usage(99));
  expect(await standing(scopes)).toEqual([[30, 0]]);
  const late = await plane.holds.open(asked(scopes, { acceptedAt: today - 5 }), 50n);
  expect(late.amount).toBe(1n);
  await late.release();
  const total = [key("apikey_windows", credits(1_000, "total"))];
  await expect.poll(() => standing(total)).toEqual([[129, 0]]);
  await expect.poll(() => standing([key("apikey_windows", credits(1, "day"))])).toEqual([[30, 0]]);
});

test("a later iteration, and a tool's call, need their estimate inside each limit (rule 3.7)", async () => {
  const { asked, standing } = await tenant("loop");
  const scopes = [key("apikey_loop", credits(100)), project("proj_loop", credits(60))];
  const bill = await plane.holds.open(asked(scopes), 20n);
  expect(await bill.advance(observed(20), 30n)).toBe(true);
  expect(await standing(scopes)).toEqual([
    [0, 50],
    [0, 50],
  ]);
  expect(await bill.spend(observed(30), 10n)).toBe(30n);
  expect(await bill.advance(observed(30), 40n)).toBe(false);
  await bill.settle(usage(30));
  expect(await standing(scopes)).toEqual([
    [30, 0],
    [30, 0],
  ]);
});

test("rates and numbers of a key hold beside the organization's, and headers tell the tightest", async () => {
  const { asked } = await tenant("rates");
  const scopes = [
    key("apikey_rates", { requestsPerMinute: 3, concurrentRequests: 2 }),
    project("proj_rates", { requestsPerMinute: 100, tokensPerMinute: 1_000 }),
  ];
  const bills = [await plane.holds.open(asked(scopes), 1n), await second.holds.open(asked(scopes), 1n)];
  expect(bills[1]?.headers).toMatchObject({
    "x-ratelimit-limit-requests": "3",
    "x-ratelimit-remaining-requests": "1",
    "x-ratelimit-limit-tokens": "1000",
  });
  const many = await refusal(plane.holds.open(asked(scopes), 1n));
  expect([many.code, many.message]).toEqual([
    "rate_limited",
    expect.stringContaining("this key of 2 requests"),
  ]);
  for (const bill of bills) await bill.settle(usage(600));
  const tokens = await refusal(plane.holds.open(asked(scopes, { inputTokens: 10 }), 1n));
  expect([tokens.code, tokens.message]).toEqual([
    "tokens_rate_limited",
    expect.stringContaining("this key's project of 1000 tokens"),
  ]);
  // Batch items are not paced by them.
  const item = { endpoint: "batch", keyEpoch: null } as const;
  await (await plane.holds.open(asked(scopes, item), 1n)).release();
  await (await plane.holds.open(asked(scopes, item), 1n)).release();
});

test("what is free and counts tokens takes from the requests a minute, and from nothing else", async () => {
  const { asked } = await tenant("paced");
  const scopes = [
    key("apikey_paced", { requestsPerMinute: 3, tokensPerMinute: 100, ...credits(1) }),
    // No further one is there for ten seconds.
    project("proj_paced", { requestsPerMinute: 5 }),
  ];
  const { organizationId } = asked(scopes);
  const payer = {
    kind: "inference",
    organizationId,
    keyId: "apikey_paced",
    keyEpoch: 1,
    limits: scopes,
  } as const;
  const bill = await plane.holds.open(asked(scopes, { inputTokens: 100 }), 1n);
  await bill.settle(usage(90));
  // Its credit and its tokens are used up.
  await plane.holds.preflight.counting(payer, 10);
  await second.holds.preflight.counting(payer, 10);
  const many = await refusal(plane.holds.preflight.counting(payer, 10));
  expect([many.code, many.message]).toEqual([
    "rate_limited",
    expect.stringContaining("this key of 3 requests per minute"),
  ]);
  expect(many.retryAfterSeconds).toBeGreaterThan(10);
  // Neither are its tokens full again, nor was the project asked by who was refused.
  const tokens = asked([key("apikey_paced", { tokensPerMinute: 100 })], { inputTokens: 90 });
  expect(await codeOf(plane.holds.open(tokens, 1n))).toBe("tokens_rate_limited");
  const free = asked([project("proj_paced", { requestsPerMinute: 5 })]);
  expect((await plane.holds.open(free, 1n)).headers["x-ratelimit-remaining-requests"]).toBe("1");
  await plane.holds.preflight.counting({ ...payer, limits: [] }, 10);
});

test("limits that are set, changed and taken away change no sum, whatever runs meanwhile", async () => {
  const { asked, standing, organizationId } = await tenant("changed");
  const free = await plane.holds.open(asked([], { keyId: "apikey_changed" }), 50n);
  const before = await plane.holds.open(asked([], { keyId: "apikey_changed" }), 50n);
  await before.settle(usage(40));
  const limited = (amount: number, keyEpoch: number): CurrentKey => ({
    keyEpoch,
    projectId: "proj_changed",
    limits: [key("apikey_changed", credits(amount))],
  });
  const change = async (now: CurrentKey) => {
    await plane.pool.transaction((transaction) => bumpKeyEpoch(transaction, organizationId));
    keys.set("apikey_changed", now);
    await plane.holds.refresh([organizationId]);
  };
  await change(limited(100, 2));
  // Asked with what was remembered from before: the limit holds all the same, on every pod.
  const stale = asked([], { keyId: "apikey_changed" });
  const bill = await second.holds.open(stale, 90n);
  await bill.settle(usage(10));
  await free.settle(usage(45));
  const scopes = limited(100, 2).limits;
  await expect.poll(() => standing(scopes)).toEqual([[95, 0]]);
  await change({ ...limited(0, 3), limits: [] });
  await (await plane.holds.open({ ...stale, id: newId("req") }, 7n)).settle(usage(7));
  await change(limited(100, 4));
  const asLimited = asked(limited(100, 4).limits, { keyEpoch: 4, limitsEpoch: 4 });
  await expect.poll(() => standing(scopes)).toEqual([[102, 0]]);
  expect(await codeOf(plane.holds.open(asLimited, 1n))).toBe("key_limit_reached");
  await change(limited(200, 5));
  const raised = { ...asLimited, id: newId("req") };
  const roomy = await plane.holds.open(raised, 500n);
  expect(roomy.amount).toBe(98n);
  await roomy.release();
  expect(await standing(scopes)).toEqual([[102, 0]]);
});

test("rule 9.2: a limit that was just set is told with what was charged just before, on every pod", async () => {
  const { asked, standing, organizationId } = await tenant("first");
  const before = await plane.holds.open(asked([], { keyId: "apikey_first" }), 50n);
  await before.settle(usage(40));
  await plane.pool.transaction((transaction) => bumpKeyEpoch(transaction, organizationId));
  await plane.holds.refresh([organizationId]);
  const scopes = [key("apikey_first", credits(100)), project("proj_first", credits(100, "total"))];
  const told = [
    [40, 0],
    [40, 0],
  ];
  expect(await Promise.all([standing(scopes), standing(scopes, second)])).toEqual([told, told]);
});

test("a key that moves takes its own spend along, and the old project keeps what was spent in it", async () => {
  const { asked, standing, organizationId } = await tenant("moves");
  const own = key("apikey_moves", credits(1_000));
  const [from, to] = [project("proj_from", credits(500)), project("proj_to", credits(500))];
  const running = await plane.holds.open(asked([own, from]), 20n);
  await (await plane.holds.open(asked([own, from]), 20n)).settle(usage(15));
  await plane.pool.transaction((transaction) => bumpKeyEpoch(transaction, organizationId));
  keys.set("apikey_moves", { keyEpoch: 2, projectId: "proj_to", limits: [own, to] });
  await plane.holds.refresh([organizationId]);
  const moved = await second.holds.open(asked([own, from]), 20n);
  await moved.settle(usage(11));
  await running.settle(usage(20));
  await expect
    .poll(() => standing([own, from]))
    .toEqual([
      [46, 0],
      [35, 0],
    ]);
  await expect.poll(() => standing([to])).toEqual([[11, 0]]);
});

test("an answer that ends after another key did keeps no limited one waiting for the ledger", async () => {
  const { asked, standing, organizationId } = await tenant("long");
  const own = key("apikey_long", credits(1_000));
  const of = [own, project("proj_long", credits(500))];
  const running = await plane.holds.open(asked([own]), 20n);
  await plane.pool.transaction((transaction) => bumpKeyEpoch(transaction, organizationId));
  keys.set("apikey_long", { keyEpoch: 2, projectId: "proj_long", limits: of });
  await plane.holds.refresh([organizationId]);
  const later = await plane.holds.open(asked([own]), 5n);
  const bookOf = (field: string) =>
    plane.redis.hget(`${plane.shardFor(organizationId).tag}:o:${organizationId}`, field);
  await plane.drained();
  await running.settle(usage(15));
  expect(await bookOf("moved")).toBeNull();
  await later.settle(usage(4));
  expect(await bookOf("moved")).toBeNull();
  await expect
    .poll(() => standing(of))
    .toEqual([
      [19, 0],
      [19, 0],
    ]);
});

test("a request goes on under a limit that was taken away; what is charged past it is no fault of Redis'", async () => {
  const { asked, organizationId } = await tenant("lifted");
  const running = await plane.holds.open(asked([key("apikey_lifted", credits(100))]), 10n);
  await plane.pool.transaction((transaction) => bumpKeyEpoch(transaction, organizationId));
  const now = { keyEpoch: 2, projectId: "proj_lifted", limits: [] };
  keys.set("apikey_lifted", now);
  await plane.holds.refresh([organizationId]);
  expect(await running.spend(observed(3), 10n)).toBeGreaterThan(0n);
  await (
    await plane.holds.open(asked([], { keyId: "apikey_lifted", limitsEpoch: 2, keyEpoch: 2 }), 7n)
  ).settle(usage(7));
  const waiting = () => plane.redis.xlen(`${shardTag(shardOf(organizationId))}:usage`);
  await expect.poll(waiting, { timeout: 10_000 }).toBe(0);
  const told = await reconciled();
  await running.settle(usage(5));
  expect(told).toEqual([]);
}, 60_000);

describe("what goes past Redis, and what Redis forgets", () => {
  test("rows straight to the ledger, flushes and dead pods change no sum", async () => {
    const { asked, standing } = await tenant("past");
    const scopes = [key("apikey_past", credits(1_000)), project("proj_past", credits(1_000))];
    const bill = await plane.holds.open(asked(scopes), 100n);
    const row = usageRow(bill.request, usage(70));
    plane.holds.charges.elsewhere(bill, row);
    const accounts = await plane.pool.transaction((transaction) => chargeRows(transaction, [row]));
    plane.holds.charges.stored([row], accounts);
    await plane.holds.payOwed();
    const both = (spent: number, held: number) => [
      [spent, held],
      [spent, held],
    ];
    await expect.poll(() => standing(scopes)).toEqual(both(70, 0));
    const running = await plane.holds.open(asked(scopes), 30n);
    const charged = await second.holds.open(asked(scopes), 30n);
    await charged.settle(usage(25));
    await plane.redis.flushall();
    await expect.poll(() => standing(scopes), { timeout: 10_000 }).toEqual(both(95, 30));
    await running.settle(usage(5));
    await expect.poll(() => standing(scopes)).toEqual(both(100, 0));
    // Its pod dies when it had observed something.
    const doomed = await Plane.open({ redisUrl: redis.url, postgresUrl: database.url }, { running: false });
    const orphan = await doomed.holds.open(asked(scopes), 50n);
    orphan.observe(observed(33));
    await doomed.holds.heartbeat();
    await doomed.vanish();
    const sweeper = await Plane.open(
      { redisUrl: redis.url, postgresUrl: database.url },
      { running: false, rhythm: { staleMs: -1 } },
    );
    await sweeper.upkeep.sweep();
    await sweeper.close();
    await expect.poll(() => standing(scopes)).toEqual(both(133, 0));
  });

  test("the ledger keeps what each key and project spent on each day, and the audit recomputes it", async () => {
    await expect.poll(() => plane.redis.keys("*:beats"), { timeout: 10_000 }).toEqual([]);
    expect(await reconciled()).toEqual([]);
    await plane.pool.query(sql.unsafe`
      update usage_daily set micros = micros + 1 where scope_id = 'apikey_past'
    `);
    expect((await reconciled()).join("\n")).toContain("apikey_past");
    await plane.pool.query(sql.unsafe`
      update usage_daily set micros = micros - 1 where scope_id = 'apikey_past'
    `);
  }, 60_000);
});

test("1,000 requests at once on a key of 10 credits, over two pods: overspend is at most one request", async () => {
  const { asked, standing } = await tenant("crowd", 10_000_000_000n);
  const scopes = [key("apikey_crowd", credits(10_000_000))];
  const cost = 300_000;
  let served = 0;
  const outcomes = await Promise.all(
    Array.from({ length: 1_000 }, async (_, index) => {
      try {
        const bill = await (index % 2 === 0 ? plane : second).holds.open(asked(scopes), BigInt(cost));
        served += 1;
        await bill.settle(usage(cost));
        return "served";
      } catch (error) {
        return error instanceof ApiError ? error.code : String(error);
      }
    }),
  );
  expect(new Set(outcomes)).toEqual(
    new Set(["served", "rate_limited", "key_limit_reached"].filter((word) => outcomes.includes(word))),
  );
  const [[spent = 0] = []] = (await standing(scopes)) ?? [];
  expect(spent).toBe(served * cost);
  expect(spent).toBeGreaterThanOrEqual(10_000_000 - cost);
  expect(spent).toBeLessThan(10_000_000 + cost);
}, 60_000);
