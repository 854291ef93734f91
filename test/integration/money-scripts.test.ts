/** What the scripts in store/meter-*.lua promise and no request of the outside can bring about by itself. */
import { beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { accountOperation } from "../../dataplane/billing/holds/account-loader.ts";
import { readAccounts } from "../../dataplane/billing/ledger/accounts.ts";
import { checkMeter } from "../../dataplane/billing/reconcile/reconcile-meter.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { MAX_MICROS } from "../../dataplane/billing/credits.ts";
import { drainedOperation, readEntries } from "../../dataplane/billing/holds/drain.ts";
import { operation, shardOf, type MeterOperation, type Shard } from "../../dataplane/billing/holds/shard.ts";
import { decodeRow, encodeRow } from "../../dataplane/billing/ledger/charge-text.ts";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { makeOrganization, request, usage, type Plane } from "./money-world.ts";
import { openStillPlane } from "./still-plane.ts";

let plane: Plane;
beforeAll(async () => {
  const opened = await openStillPlane();
  plane = opened.plane;
  return opened.close;
});

let organization: string;
let shard: Shard;
let count = 0;
async function begin(name: string, granted: bigint): Promise<void> {
  organization = name;
  shard = plane.shardFor(organization);
  await makeOrganization(plane.pool, organization, granted);
  await plane.holds.refresh([organization]);
}
beforeEach(() => begin(`org_${(count += 1)}`, MAX_MICROS));

const key = (): string => `${shard.tag}:o:${organization}`;
const waiting = (): string => `${shard.tag}:waiting`;
const book = (field: string) => plane.redis.hget(key(), field);
const run = (one: MeterOperation) => shard.run(one, 1_000);
const hold = (id: string, amount: bigint): MeterOperation =>
  operation("hold", organization, id, amount.toString(), "", "", "0", "0", "0", "0", "");
const settle = (id: string, cost: bigint): MeterOperation => {
  const row = encodeRow(usageRow(request(organization, { id }), usage(Number(cost))));
  return operation("settle", organization, id, cost.toString(), row, "0", "0", "0", "", "1");
};

test("tokens a minute are corrected once of a charge that Redis took and the ledger has, too", async () => {
  const correction = ["0", "1000000", "400000", "", "1"] as const;
  const row = encodeRow(usageRow(request(organization, { id: `req_${count}` }), usage(1)));
  const [word] = await run(operation("settle", organization, `req_${count}`, "1", row, ...correction));
  expect(word).toBe("settled");
  const [requests, tokens, epoch] = [correction.slice(0, 3), correction[3], correction[4]];
  for (let times = 0; times < 2; times += 1)
    await run(operation("release", organization, `req_${count}`, ...requests, "1", tokens, epoch));
  const bucket = await plane.redis.get(`${shard.tag}:l:${organization}`);
  // It fills meanwhile.
  expect(Number(bucket?.split(" ")[1])).toBeGreaterThanOrEqual(600_000);
});

test("who lacks something of what it wants has no more left than others lack, too", async () => {
  await begin(`org_lacking_${count}`, 100n);
  const [first, second] = [`req_${count}_first`, `req_${count}_second`];
  expect(await run(hold(first, 60n))).toEqual(["held", "60"]);
  // 20 of its estimate are not there.
  expect(await run(hold(second, 60n))).toEqual(["held", "40"]);
  const spend = (wanted: string) =>
    run(operation("spend", organization, first, "10", wanted, "", "", "0", ""));
  expect(await spend("60")).toEqual(["noted", "60", "50"]);
  expect(await spend("90")).toEqual(["noted", "60", "30"]);
});

describe("a limit a minute that is changed", () => {
  const ask = (id: string, requests: number, tokens: number, taken: number) =>
    operation(
      "hold",
      organization,
      `req_${count}_${id}`,
      "1",
      "",
      "",
      "0",
      String(requests),
      String(tokens),
      String(taken),
      "",
    );

  test("gives the difference at once when it is raised, and takes it when it is lowered", async () => {
    const correct = operation("release", organization, `req_${count}_a`, "2", "1000", "50", "0", "", "1");
    const replies = await Promise.all([
      run(ask("a", 2, 1_000, 900)),
      run(ask("b", 2, 1_000, 90)),
      run(ask("c", 2, 1_000, 1)),
      run(ask("d", 600, 50_000, 40_000)),
      // Of a request that was admitted under what held before.
      run(correct),
      run(ask("e", 500, 9_950, 900)),
      run(ask("f", 600, 9_950, 1)),
      run(ask("g", 4, 0, 0)),
      run(ask("h", 4, 0, 0)),
      run(ask("i", 0, 0, 0)),
      run(ask("j", 5, 0, 0)),
      run(ask("k", 5, 7, 7)),
    ]);
    // Of requests and of tokens: the limit, what is left, and the milliseconds until it is full.
    expect(replies).toEqual([
      ["held", "1", "2", "1", "30000", "1000", "100", "54000"],
      ["held", "1", "2", "0", "60000", "1000", "10", "59400"],
      ["limited", "o", "requests", "30000", "2", "2", "0", "60000", "1000", "10", "59400"],
      ["held", "1", "600", "597", "300", "50000", "9010", "49188"],
      ["released"],
      ["limited", "o", "tokens", "38388", "9950", "500", "497", "360", "9950", "0", "60000"],
      ["limited", "o", "tokens", "37310", "9950", "600", "597", "300", "9950", "0", "60000"],
      ["held", "1", "4", "0", "60000", "0", "0", "0"],
      ["limited", "o", "requests", "15000", "4", "4", "0", "60000", "0", "0", "0"],
      ["held", "1"],
      ["held", "1", "5", "0", "60000", "0", "0", "0"],
      ["limited", "o", "requests", "12000", "5", "5", "0", "60000", "7", "7", "0"],
    ]);
  });

  test("gives nothing of what a request does not ask for, where another data plane has the other limit", async () => {
    const name = `apikey_${organization}`;
    const scope = (tokens: number) => `k ${name} - 0 0 100 ${tokens}`;
    const amounts = ["", "", "0", "0", "0", "40000", scope(50_000)];
    const free = (perMinute: number, size: number, requests: number) =>
      operation("free", organization, "inference", ...[perMinute, size, requests, 1_000, 0, 0].map(String));
    await Promise.all([
      run(operation("hold", organization, `req_${count}`, "1", ...amounts)),
      run(operation("pace", scope(1_000))),
      run(operation("pace", scope(0))),
      run(operation("pace", scope(50_000))),
      run(free(60_000, 10_000, 5_000)),
      run(free(6_000, 1_000, 0)),
      run(free(60_000, 10_000, 0)),
    ]);
    const levels = await plane.redis.get(`${shard.tag}:l:/${name}`);
    expect(levels?.split(" ").slice(0, 2)).toEqual(["96", "10000"]);
    expect(await plane.redis.hget(`${shard.tag}:f:inference:${organization}`, "requests")).toBe("5000");
  });

  test("gives it of what is free as well", async () => {
    const take = (perMinute: number, size: number, requests = 1) =>
      operation(
        "free",
        organization,
        "inference",
        ...[perMinute, size, requests, 1_000_000, 0, 0].map(String),
      );
    const replies = await Promise.all([
      run(take(6_000, 1_000, 1_000)),
      run(take(6_000, 1_000)),
      run(take(12_000, 2_000, 1_000)),
      run(take(12_000, 2_000)),
      run(take(60_000, 10_000, 7_000)),
      run(take(6_000, 1_000)),
    ]);
    expect(replies).toEqual([
      ["taken"],
      ["limited", "requests", "10"],
      ["taken"],
      ["limited", "requests", "5"],
      ["taken"],
      ["limited", "requests", "8001"],
    ]);
  });
});

describe("the operations of one call", () => {
  test("change the books by exactly their sum, however large", async () => {
    const costs = [MAX_MICROS, MAX_MICROS - 1n, 999_999_999_999_999n, 1n, 0n, 3n];
    const all = Array.from({ length: 120 }, (_, index) => costs[index % costs.length] ?? 0n);
    const replies = await Promise.all(all.map((cost, index) => run(settle(`req_${count}_${index}`, cost))));
    expect(new Set(replies.map(([word]) => word))).toEqual(new Set(["settled"]));
    expect(await book("undrained")).toBe(all.reduce((sum, cost) => sum + cost, 0n).toString());
    await plane.redis.del(`${shard.tag}:usage`, waiting(), key());
  });

  test("change them exactly by a charge that no double holds, and the ledger takes it exactly", async () => {
    const cost = 2n ** 53n + 1n;
    const row = encodeRow(usageRow(request(organization, { id: `req_${count}` }), usage(1)));
    const scope = `k apikey_${organization} t0 1 0 0 0`;
    await run(
      operation("settle", organization, `req_${count}`, String(cost), row, "0", "0", "0", scope, "1"),
    );
    const scoped = () => plane.redis.hget(`${shard.tag}:s:/apikey_${organization}.t0`, "undrained");
    expect([await book("undrained"), await scoped()]).toEqual([String(cost), String(cost)]);
    const { broken } = await checkMeter(plane.pool, plane.redis);
    expect(broken.filter((line) => line.includes("in the stream sum to"))).toEqual([]);
    const [[entry] = [""]] = await plane.redis.xrange(`${shard.tag}:usage`, "-", "+");
    const sums = [organization, String(cost), `/apikey_${organization}.t0`, String(cost)];
    const told = operation("drained", "", entry, entry, "1", "1", "0", "0", ...sums);
    expect(await run(told)).toEqual(["drained"]);
    expect([await book("undrained"), await scoped()]).toEqual(["0", "0"]);
  });

  test("see what those before them changed", async () => {
    const [, second, third, balance] = await Promise.all([
      run(hold(`req_${count}_a`, MAX_MICROS - 5n)),
      run(hold(`req_${count}_b`, 9n)),
      run(hold(`req_${count}_c`, 1n)),
      run(operation("balance", organization)),
    ]);
    expect([second, third]).toEqual([
      ["held", "5"],
      ["busy", ""],
    ]);
    expect(balance?.slice(0, 3)).toEqual(["balance", "0", MAX_MICROS.toString()]);
    expect(await plane.redis.hmget(key(), "held", "live", "short")).toEqual([
      MAX_MICROS.toString(),
      "2",
      "4",
    ]);
  });

  test("take from one bucket in turn, and it is stored once", async () => {
    const scope = `k apikey_${organization} - 0 0 100 0`;
    const holdOf = (id: string, tokens: number) =>
      operation(
        "hold",
        organization,
        `req_${count}_${id}`,
        "1",
        "",
        "",
        "0",
        "3",
        "100",
        String(tokens),
        scope,
      );
    const correct = operation("release", organization, `req_${count}_a`, "3", "100", "50", "0", scope, "1");
    const replies = await Promise.all([
      run(holdOf("a", 10)),
      run(holdOf("b", 20)),
      run(correct),
      run(holdOf("more tokens than are left", 30)),
      run(holdOf("c", 5)),
      run(operation("pace", scope)),
      run(holdOf("a fourth", 1)),
    ]);
    // Of requests and of tokens: the limit, what is left, and the milliseconds until it is full.
    expect(replies).toEqual([
      ["held", "1", "3", "2", "20000", "100", "90", "6000"],
      ["held", "1", "3", "1", "40000", "100", "70", "18000"],
      ["released"],
      ["limited", "o", "tokens", "6000", "100", "3", "1", "40000", "100", "20", "48000"],
      ["held", "1", "3", "0", "60000", "100", "15", "51000"],
      ["taken"],
      ["limited", "o", "requests", "20000", "3", "3", "0", "60000", "100", "15", "51000"],
    ]);
    const levels = async (name: string) =>
      (await plane.redis.get(`${shard.tag}:l:${name}`))?.split(" ").slice(0, 2);
    expect(await levels(organization)).toEqual(["0", "15"]);
    expect((await levels(`/apikey_${organization}`))?.[0]).toBe("96");
  });

  test("pass a full memory where they only take from buckets", async () => {
    await plane.redis.config("SET", "maxmemory", "1");
    try {
      const replies = await Promise.all([
        run(operation("pace", `k apikey_${organization} - 0 0 100 0`)),
        run(operation("look", organization, "", "0", "0", "0", "")),
      ]);
      expect(replies).toEqual([["taken"], ["fine"]]);
    } finally {
      await plane.redis.config("SET", "maxmemory", "0");
    }
  });

  test("see what the ledger's account is after those before them told it", async () => {
    await begin("org_small", 1_000n);
    await run(settle(`req_${count}_spent`, 990n));
    const entries = await readEntries(plane.redis, shard);
    const rows = entries.flatMap(({ charges }) => charges.map(({ text }) => decodeRow(text)));
    const accounts = await plane.pool.transaction((transaction) => chargeRows(transaction, rows));
    const [first, drained, second] = await Promise.all([
      run(hold(`req_${count}_a`, 4n)),
      run(drainedOperation(accounts, entries, [])),
      run(hold(`req_${count}_b`, 100n)),
    ]);
    expect([first, drained, second]).toEqual([["held", "4"], ["drained"], ["held", "6"]]);
  });

  test("charge to scopes that are known, also when the account is told between two charges", async () => {
    const [account] = await readAccounts(plane.pool, [organization]);
    if (account === undefined) throw new Error("the organization has no account");
    const replies = await Promise.all([
      run(settle(`req_${count}_a`, 1n)),
      run(accountOperation(account, "", true)),
      run(settle(`req_${count}_b`, 2n)),
      run(operation("standing", organization, "")),
    ]);
    expect(replies).toEqual([["settled"], ["taken"], ["settled"], ["standing"]]);
    expect(await book("moved")).toBeNull();
    expect(await book("undrained")).toBe("3");
    await plane.upkeep.drain();
  });

  test("charge in one entry of the stream, whose charges are counted", async () => {
    const ids = ["a", "b", "c"].map((name) => `req_${count}_${name}`);
    await Promise.all([run(hold(`req_${count}_d`, 9n)), ...ids.map((id) => run(settle(id, 4n)))]);
    await run(settle(`req_${count}_d`, 5n));
    const entries = await readEntries(plane.redis, shard);
    expect(entries.map(({ charges }) => charges.map(({ text }) => decodeRow(text).id))).toEqual([
      ids,
      [`req_${count}_d`],
    ]);
    expect(await plane.redis.get(waiting())).toBe("4");
    expect(await run(drainedOperation([], entries.slice(0, 1), []))).toEqual(["drained"]);
    expect([await plane.redis.get(waiting()), await book("undrained")]).toEqual(["1", "5"]);
    expect(await plane.upkeep.drain()).toBe(1);
    expect(await plane.redis.exists(waiting())).toBe(0);
  });

  test("do not suffer from one among them that fails", async () => {
    const outcomes = await Promise.allSettled([
      run(hold(`req_${count}_a`, 7n)),
      run(operation("nonsense")),
      run(hold(`req_${count}_b`, 2n)),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect([await book("held"), await book("live")]).toEqual(["9", "2"]);
    expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
  });
});

test("an organization whose key is none of ours fails alone", async () => {
  const others = Array.from({ length: 200 }, (_, index) => `org_other_${index}`);
  const other = others.find((name) => shardOf(name) === shardOf(organization)) ?? "";
  const theirs = `${shard.tag}:o:${other}`;
  await plane.redis.set(theirs, "no hash");
  const row = encodeRow(usageRow(request(other), usage(5)));
  const outcomes = await Promise.allSettled([
    run(hold(`req_${count}_mine`, 7n)),
    run(operation("settle", other, `req_${count}_other`, "5", row, "0", "0", "0", "", "1")),
    run(operation("retake", other, `req_${count}_other`, "5", "", "", "0", "")),
    run(settle(`req_${count}_mine_too`, 4n)),
  ]);
  expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected", "fulfilled"]);
  expect(await plane.redis.hmget(key(), "held", "live", "undrained")).toEqual(["7", "1", "4"]);
  expect(await plane.redis.xlen(`${shard.tag}:usage`)).toBe(1);
  expect(await plane.redis.exists(`${shard.tag}:r:req_${count}_other`)).toBe(0);
  await plane.redis.del(theirs);
  await run(settle(`req_${count}_mine`, 1n));
  await plane.upkeep.drain();
});

describe("that a request was charged is known for 75 seconds", () => {
  const requestKey = (id: string) => `${shard.tag}:r:${id}`;
  const list = () => `${shard.tag}:charged`;
  const sweep = operation("sweep", "45000", "10");
  beforeEach(() => plane.redis.del(list()));
  /** As if everything had been charged so long ago. */
  const age = async (ms: number) => {
    const calls = await plane.redis.lrange(list(), 0, -1);
    for (const [index, call] of calls.entries()) {
      const [at, ...ids] = call.split("\x1f");
      await plane.redis.lset(list(), index, [Number(at) - ms, ...ids].join("\x1f"));
    }
  };

  test("and then forgotten by a sweep", async () => {
    const ids = ["a", "b", "c"].map((name) => `req_${count}_${name}`);
    await Promise.all(ids.map((id) => run(settle(id, 4n))));
    await run(settle(`req_${count}_d`, 4n));
    await age(70_000);
    await run(sweep);
    expect(await plane.redis.exists(...ids.map(requestKey))).toBe(3);
    expect(await run(settle(ids[0] ?? "", 4n))).toEqual(["done"]);
    await age(6_000);
    await run(sweep);
    expect(await plane.redis.exists(...ids.map(requestKey), list())).toBe(0);
    await plane.upkeep.drain();
  });

  test("and then forgotten by later charges, faster than they come in", async () => {
    for (let index = 0; index < 110; index += 1) await run(settle(`req_${count}_${index}`, 1n));
    await age(76_000);
    for (let index = 110; index < 220; index += 1) await run(settle(`req_${count}_${index}`, 1n));
    expect(await plane.redis.exists(requestKey(`req_${count}_0`), requestKey(`req_${count}_9`))).toBe(0);
    expect(await plane.redis.llen(list())).toBeLessThan(115);
    await plane.upkeep.drain();
  });

  test("once, however often it is told", async () => {
    const id = `req_${count}_told`;
    const release = operation("release", organization, id, "0", "0", "0", "1", "", "1");
    await run(release);
    await run(release);
    expect(await run(settle(id, 4n))).toEqual(["done"]);
    expect(await plane.redis.llen(list())).toBe(1);
  });

  test("and what was charged provisionally comes back as a hold, which nothing ends but its owner", async () => {
    const id = `req_${count}_late`;
    const row = encodeRow({ ...usageRow(request(organization, { id }), usage(40)), provisional: true });
    await run(operation("retake", organization, id, "100", "", row, "40", ""));
    await run(operation("sweep", "-1", "10"));
    expect(await plane.redis.pttl(requestKey(id))).toBeGreaterThan(70_000);
    await run(operation("retake", organization, id, "100", "", row, "40", ""));
    expect(await plane.redis.pttl(requestKey(id))).toBe(-1);
    await age(80_000);
    await run(sweep);
    expect(await book("held")).toBe("100");
    expect(await run(settle(id, 50n))).toEqual(["settled"]);
    await plane.upkeep.drain();
  });
});

test("a sweep spares what was heard of in the same call", async () => {
  const id = `req_${count}_heard`;
  await run(hold(id, 7n));
  await plane.redis.zadd(`${shard.tag}:beats`, 1, id);
  await Promise.all([run(operation("heartbeat", id, "", "0")), run(operation("sweep", "45000", "10"))]);
  expect(await book("held")).toBe("7");
  await plane.redis.zadd(`${shard.tag}:beats`, 1, id);
  await run(operation("sweep", "45000", "10"));
  expect(await book("held")).toBe("0");
});

test("a charge that Redis refuses changes nothing, and is made when it is tried again", async () => {
  const id = `req_${count}_refused`;
  const stream = `${shard.tag}:usage`;
  await run(hold(id, 9n));
  await plane.redis.set(stream, "no stream");
  await expect(run(settle(id, 4n))).rejects.toMatchObject({
    cause: { message: expect.stringMatching(/WRONGTYPE/) },
  });
  expect(await plane.redis.hmget(key(), "held", "live", "undrained")).toEqual(["9", "1", null]);
  await plane.redis.del(stream);
  expect(await run(settle(id, 4n))).toEqual(["settled"]);
  expect(await plane.redis.hmget(key(), "held", "live", "undrained")).toEqual(["0", "0", "4"]);
  expect(await plane.redis.xlen(stream)).toBe(1);
  await plane.upkeep.drain();
});

describe("a drainer that tells Redis what the ledger has", () => {
  const settled = async (costs: readonly number[]) => {
    for (const cost of costs) await (await plane.holds.open(request(organization), 10n)).settle(usage(cost));
  };

  test("stores more than one transaction takes", async () => {
    const ids = Array.from({ length: 2_100 }, (_, index) => `req_${count}_${index}`);
    await Promise.all(ids.map((id) => run(settle(id, 1n))));
    expect(await plane.redis.xlen(`${shard.tag}:usage`)).toBeLessThan(20);
    expect(await plane.upkeep.drain()).toBe(2_100);
    expect((await plane.holds.standing.credit(organization)).used).toBe(2_100n);
    expect([await plane.redis.exists(waiting()), await book("undrained")]).toEqual([0, "0"]);
    expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
  });

  test("comes to the other shards, however fast more comes into one", async () => {
    const [busy, quiet] = [plane.shardFor("org_busy"), plane.shardFor("org_calm")];
    // The order in which they are drained.
    expect(plane.holds.shards.indexOf(quiet)).toBeGreaterThan(plane.holds.shards.indexOf(busy));
    /** As many entries as are read at once. */
    const settleMany = async () => {
      for (let n = 0; n < 250; n += 1)
        await (await plane.holds.open(request("org_busy"), 1n)).settle(usage(1));
    };
    for (const id of ["org_busy", "org_calm"]) await makeOrganization(plane.pool, id, MAX_MICROS);
    await settleMany();
    await (await plane.holds.open(request("org_calm"), 1n)).settle(usage(1));
    const told: string[] = [];
    for (const one of [busy, quiet]) {
      const run = one.run.bind(one);
      vi.spyOn(one, "run").mockImplementation(async (word, timeoutMs) => {
        if (!word.startsWith("drained")) return await run(word, timeoutMs);
        told.push(one === busy ? "busy" : "quiet");
        const reply = await run(word, timeoutMs);
        if (one === busy && told.length < 4) await settleMany();
        return reply;
      });
    }
    try {
      await plane.upkeep.drain();
      expect(told).toEqual(["busy", "quiet"]);
    } finally {
      vi.restoreAllMocks();
    }
    await plane.drained();
  });

  test("changes nothing when another one was faster", async () => {
    await settled([1, 2, 3]);
    const entries = await readEntries(plane.redis, shard);
    await settled([4]);
    expect(await run(drainedOperation([], entries.slice(0, 2), []))).toEqual(["drained"]);
    for (const late of [entries, entries.slice(0, 2), entries.slice(1), entries.slice(1, 2)])
      expect(await run(drainedOperation([], late, []))).toEqual(["moved"]);
    expect(await book("undrained")).toBe("7");
    expect(await plane.redis.xlen(`${shard.tag}:usage`)).toBe(2);
    await plane.upkeep.drain();
    expect(await book("undrained")).toBe("0");
  });

  test("changes nothing when Redis has lost the end of what was read", async () => {
    await settled([1, 2, 3]);
    const entries = await readEntries(plane.redis, shard);
    await plane.redis.xdel(`${shard.tag}:usage`, entries.at(-1)?.entryId ?? "");
    await plane.redis.hincrby(key(), "undrained", -3);
    expect(await run(drainedOperation([], entries, []))).toEqual(["moved"]);
    expect(await book("undrained")).toBe("3");
    await plane.upkeep.drain();
    expect(await book("undrained")).toBe("0");
  });

  test("leaves too little available, never too much, when somebody took an entry from among them", async () => {
    await settled([1, 2, 3]);
    const entries = await readEntries(plane.redis, shard);
    await plane.redis.xdel(`${shard.tag}:usage`, entries[1]?.entryId ?? "");
    expect(await run(drainedOperation([], entries, []))).toEqual(["broken"]);
    expect(await book("undrained")).toBe("6");
    expect((await reconcileLedger(plane.pool, plane.redis)).broken.join()).toContain(organization);
    await plane.redis.hdel(key(), "undrained");
  });
});

test("a request that comes back after it was swept is not charged provisionally a second time", async () => {
  const id = `req_${count}_back`;
  const row = encodeRow({ ...usageRow(request(organization, { id }), usage(40)), provisional: true });
  const retake = operation("retake", organization, id, "100", "", row, "40", "");
  const sweep = operation("sweep", "-1", "10");
  await run(retake);
  await run(sweep);
  expect(await book("undrained")).toBe("40");
  await run(retake);
  expect(await book("held")).toBe("100");
  await run(sweep);
  expect([await book("undrained"), await book("held")]).toEqual(["40", "0"]);
  expect(await run(settle(id, 50n))).toEqual(["settled"]);
  await plane.upkeep.drain();
  expect((await plane.holds.standing.credit(organization)).used).toBe(50n);
});
