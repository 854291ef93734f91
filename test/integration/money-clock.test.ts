/**
 * A step of Redis' clock, in either direction, refuses nobody and frees no limit (rule 12.8). Nobody can move the clock of
 * a server here, so the scripts are run as they are but for where they read it.
 */
import { readFileSync, readdirSync } from "node:fs";
import type { RedisStore } from "../../dataplane/store/redis-servers.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { operation, shardTag, type MeterOperation } from "../../dataplane/billing/holds/shard.ts";
import { openRedis, redisReady } from "../../dataplane/store/redis.ts";
import { freshRedis, type TestStore } from "./stores.ts";

const HOUR = 3_600_000;
const folder = new URL("../../dataplane/store/", import.meta.url);
/** As shard.ts joins them; the first and the last have their place. */
const names = readdirSync(folder).filter((name) => /^meter-.*\.lua$/.test(name));
const first = [
  "meter-shard.lua",
  "meter-scopes.lua",
  "meter-requests.lua",
  "meter-limits.lua",
  "meter-account.lua",
];
const others = names.filter((name) => ![...first, "meter-apply.lua", "meter-reconcile.lua"].includes(name));
const text = [...first, ...others, "meter-apply.lua"]
  .map((name) => readFileSync(new URL(name, folder), "utf8"))
  .join("\n");
const CLOCK = "call('TIME')";
/** The last argument is the time in seconds and microseconds. */
const script = text.replace(CLOCK, "{ tonumber(ARGV[4]), tonumber(ARGV[5]) }");

let store: TestStore;
let redis: RedisStore;
beforeAll(async () => {
  store = await freshRedis();
  redis = openRedis(store.url, { onError: () => {} });
  await redisReady(redis, 5_000);
  expect(text.split(CLOCK)).toHaveLength(2);
});
afterAll(async () => {
  redis.disconnect();
  await store[Symbol.asyncDispose]();
});

const tag = shardTag(0);
/** The server's clock, in milliseconds. */
let clock = 0;
let epoch = "";
async function call(one: MeterOperation): Promise<string[]> {
  const time = [String(Math.floor(clock / 1_000)), String((clock % 1_000) * 1_000)];
  const reply = (await redis.eval(script, 1, tag, epoch, "ours.epoch", one, ...time)) as [number, string];
  if (reply[0] === 1) return reply[1].split("\x1f");
  epoch = reply[1];
  return call(one);
}
/** Time passes as it does where a leader calls four times a second. */
async function pass(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 250) {
    clock += Math.min(250, left);
    await call(operation("lead", "pod", ""));
  }
}
beforeEach(async () => {
  await redis.flushall();
  clock = 1_790_000_000_000;
  await call(operation("account", "org", "1000000", "1", "1", "0"));
});

let requests = 0;
/** The organization may ask six times a minute. */
const hold = () => {
  requests += 1;
  return call(operation("hold", "org", `req_${requests}`, "1", "", "0", "0", "6", "0", "0", ""));
};
async function useUp(): Promise<void> {
  for (let left = 6; left > 0; left -= 1) expect((await hold())[0]).toBe("held");
  expect((await hold()).slice(0, 2)).toEqual(["limited", "o"]);
}
const sweep = async () => Number((await call(operation("sweep", "45000", "100")))[1]);

test("back by an hour: who has used up a limit waits as long as ever, and no longer", async () => {
  await useUp();
  clock -= HOUR;
  expect((await hold())[0]).toBe("limited");
  await pass(11_000);
  expect((await hold())[0]).toBe("held");
  expect((await hold())[0]).toBe("limited");
});

test("forward by an hour: no limit is freed, and going back again changes nothing", async () => {
  await useUp();
  clock += HOUR;
  expect((await hold())[0]).toBe("limited");
  await pass(1_000);
  clock -= HOUR;
  expect((await hold())[0]).toBe("limited");
  await pass(10_000);
  expect((await hold())[0]).toBe("held");
  // The bucket is not forgotten before it is full, though the server's clock jumps.
  expect(await redis.pttl(`${tag}:l:org`)).toBeGreaterThan(24 * HOUR);
});

test("a raised limit is waited for as long as it takes to fill, whoever was refused meanwhile", async () => {
  const ask = (id: string, limit: number) =>
    call(operation("hold", "org", `req_${id}`, "1", "", "0", "0", "0", String(limit), "10", ""));
  await ask("long", 600);
  // It used twenty minutes' worth.
  await call(operation("release", "org", "req_long", "0", "600", "12000", "0", "", "1"));
  await pass(30_000);
  expect((await ask("before", 600)).slice(0, 4)).toEqual(["limited", "o", "tokens", "1112000"]);
  const [, , , wait] = await ask("raised", 6_000);
  await pass(Number(wait));
  expect((await ask("raised", 6_000))[0]).toBe("held");
  expect((await redis.get(`${tag}:l:org`))?.split(" ")[1]).toBe("0");
});

test("whom a lowered limit refuses is told when something is left of it", async () => {
  let count = 0;
  const ask = (limit: number, tokens: number) => {
    const amounts = ["0", limit, tokens].map(String);
    return call(operation("hold", "org", `req_lowered_${(count += 1)}`, "1", "", "0", "0", ...amounts, ""));
  };
  const take = (perMinute: number, size: number, requests: number) =>
    call(operation("free", "org", "counts", ...[perMinute, size, requests, 600, 0, 0].map(String)));
  for (const [use, again] of [
    [() => ask(600, 500), () => ask(60, 10)],
    [() => take(600, 100, 90), () => take(60, 10, 1)],
  ] as const) {
    expect((await use())[0]).not.toBe("limited");
    const [word, ...told] = await again();
    expect(word).toBe("limited");
    const wait = Number(told.find((text) => /^\d+$/.test(text)));
    await pass(wait - 1);
    expect((await again())[0]).toBe("limited");
    await pass(1);
    expect((await again())[0]).not.toBe("limited");
  }
});

/** What costs nothing: six times a minute, too. */
const free = () => call(operation("free", "org", "counts", "6", "6", "1", "600", "1", "1"));

test("what costs nothing: a step of an hour refuses nobody and frees no limit either", async () => {
  for (let left = 6; left > 0; left -= 1) expect(await free()).toEqual(["taken"]);
  expect((await free()).slice(0, 2)).toEqual(["limited", "requests"]);
  clock += HOUR;
  expect((await free())[0]).toBe("limited");
  expect(await redis.pttl(`${tag}:f:counts:org`)).toBeGreaterThan(24 * HOUR);
  await pass(11_000);
  expect(await free()).toEqual(["taken"]);
  // Started again, so that the shard's own clock is gone, as in a limit of requests.
  clock -= 2 * HOUR;
  await redis.del(`${tag}:clock`);
  expect(await free()).toEqual(["taken"]);
});

test("forward by an hour: a living request's hold is not swept", async () => {
  await hold();
  clock += HOUR;
  expect(await sweep()).toBe(0);
  clock -= HOUR;
  expect(await sweep()).toBe(0);
});

test("back by an hour: a dead request's hold is swept as soon as ever", async () => {
  await hold();
  clock -= HOUR;
  await pass(40_000);
  expect(await sweep()).toBe(0);
  await pass(6_000);
  expect(await sweep()).toBe(1);
  expect(await redis.hget(`${tag}:o:org`, "held")).toBe("0");
});

test("back by an hour: what was heard of just before is not of a later time than now", async () => {
  clock += 150;
  await hold();
  clock -= HOUR;
  expect((await call(operation("sweep", "0", "100")))[1]).toBe("1");
});

test("back by an hour and started again, so that the shard's own clock is gone: the same", async () => {
  await useUp();
  clock -= HOUR;
  await redis.del(`${tag}:clock`);
  expect(await sweep()).toBe(0);
  // As after any restart, a minute's limits begin anew.
  expect((await hold())[0]).toBe("held");
  await pass(46_000);
  expect(await sweep()).toBe(7);
});

test("charges are forgotten, whichever way the clock went", async () => {
  const charged = async () => await redis.llen(`${tag}:charged`);
  for (const step of [HOUR, -HOUR]) {
    await call(operation("settle", "org", `req_charged_${step}`, "1", "row", "0", "0", "0", "", "1"));
    clock += step;
    await pass(60_000);
    await sweep();
    expect(await charged()).toBe(1);
    await pass(16_000);
    await sweep();
    expect(await charged()).toBe(0);
  }
});

describe("what nobody asks for any more", () => {
  const DAY = 24 * HOUR;
  const limit = "k apikey_a m20000 500 0 0 0";
  /** Days pass, by the shard's clock. */
  async function passDays(days: number): Promise<void> {
    const [raw, now, ...rest] = ((await redis.get(`${tag}:clock`)) ?? "").split(" ");
    await redis.set(`${tag}:clock`, [raw, Number(now) + days * DAY, ...rest].join(" "));
  }
  const account = (version: number) =>
    call(operation("account", "org", "1000000", String(version), "1", "0", ""));
  /** What the key has spent in its month is read from the ledger, under the organization's keys of now. */
  const readScope = (spent: number, version: number) =>
    call(operation("scope", "org", "/apikey_a.m20000", String(-spent), String(version), "", "1"));
  const scoped = (id: string) => call(operation("hold", "org", id, "10", "", "0", "0", "0", "0", "0", limit));
  const known = async () => [
    await redis.exists(`${tag}:o:org`),
    await redis.exists(`${tag}:s:/apikey_a.m20000`),
    await redis.zcard(`${tag}:accounts`),
    await redis.zcard(`${tag}:scopes`),
  ];

  test("is forgotten, scopes after 8 days and organizations after 90, and read from the ledger when they are back", async () => {
    await readScope(100, 1);
    await passDays(7);
    await sweep();
    expect(await known()).toEqual([1, 1, 1, 1]);
    await passDays(2);
    await sweep();
    expect(await known()).toEqual([1, 0, 1, 0]);
    await passDays(80);
    await sweep();
    expect(await known()).toEqual([1, 0, 1, 0]);
    await passDays(2);
    await sweep();
    expect(await known()).toEqual([0, 0, 0, 0]);
    expect(await redis.keys(`${tag}:[os]:*`)).toEqual([]);
    expect(await hold()).toEqual(["load"]);
    expect(await account(1)).toEqual(["taken"]);
    expect(await scoped("req_back")).toEqual(["scopes"]);
    expect(await readScope(100, 1)).toEqual(["taken"]);
    expect(await scoped("req_back")).toEqual(["held", "10"]);
    expect(await known()).toEqual([1, 1, 1, 1]);
  });

  test("is known as long as anything is held or on its way to the ledger", async () => {
    await readScope(100, 1);
    await passDays(91);
    expect(await scoped("req_late")).toEqual(["held", "10"]);
    await sweep();
    expect(await known()).toEqual([1, 1, 1, 1]);
    await passDays(91);
    await call(operation("settle", "org", "req_late", "7", "row", "0", "0", "0", limit, "1"));
    await sweep();
    expect(await known()).toEqual([1, 1, 1, 1]);
    expect(await redis.hget(`${tag}:o:org`, "undrained")).toBe("7");
    expect(await redis.hget(`${tag}:s:/apikey_a.m20000`, "undrained")).toBe("7");
    // The ledger has it, and only then is it idle.
    const [[entry]] = (await redis.xrange(`${tag}:usage`, "-", "+")) as [[string, string[]]];
    const account = ["org", "999993", "2"];
    const scope = ["org", "/apikey_a.m20000", "-107", "2"];
    const sums = ["org", "7", "/apikey_a.m20000", "7"];
    const counts = ["1", "1", "1", "1"];
    await call(operation("drained", "", entry, entry, ...counts, ...account, ...scope, ...sums));
    await passDays(91);
    await sweep();
    expect(await known()).toEqual([0, 0, 0, 0]);
  });

  test("is forgotten beside what is none of ours", async () => {
    await call(operation("account", "other", "1", "1", "1", "0", ""));
    await redis.set(`${tag}:o:org`, "none of ours");
    await passDays(91);
    expect((await call(operation("sweep", "45000", "100")))[0]).toBe("swept");
    expect(await redis.keys(`${tag}:o:*`)).toEqual([`${tag}:o:org`]);
  });

  test("leaves no old spend that counts again", async () => {
    const spent = async () => (await call(operation("standing", "org", limit)))[1];
    await passDays(89);
    await call(operation("reread", "org"));
    await readScope(100, 1);
    expect(await spent()).toBe("100");
    await passDays(2);
    await sweep();
    // Its scope was read two days ago.
    expect(await known()).toEqual([0, 1, 0, 1]);
    // A batch's item was charged past this Redis meanwhile.
    await call(operation("release", "org", "req_item", "0", "0", "0", "1", limit, "1"));
    await account(2);
    expect(await spent()).toBe("");
  });
});
