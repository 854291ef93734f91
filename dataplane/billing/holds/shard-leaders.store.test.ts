/** Pods that share the shards among them, on a real Redis; each round is the test's. */
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { freshRedis, type TestStore } from "../../../test/integration/stores.ts";
import { openRedis, redisReady } from "../../store/redis.ts";
import { ShardLeaders } from "./shard-leaders.ts";
import { SHARDS } from "./shard.ts";
import { Shards } from "./shards.ts";
import type { RedisStore } from "../../store/redis-servers.ts";

let store: TestStore;
let redis: RedisStore;
let shards: Shards;
beforeAll(async () => {
  store = await freshRedis();
  redis = openRedis(store.url, { onError: () => {} });
  await redisReady(redis, 5_000);
  shards = new Shards({
    redis,
    ledger: "ours",
    newEpoch: () => "epoch",
    onLost: () => [],
    onRestored: () => {},
    onTaken: () => {},
  });
});
afterAll(async () => {
  redis.disconnect();
  await store[Symbol.asyncDispose]();
});
beforeEach(() => redis.flushall());

let now = 0;
const pod = (name: string) => new ShardLeaders({ pod: name, shards: shards.all, random: () => 0.5 });
async function round(...pods: readonly ShardLeaders[]): Promise<void> {
  now += 250;
  for (const one of pods) {
    const words = await Promise.all(shards.all.map(({ tag }) => redis.get(`${tag}:leader`)));
    for (const [index, word] of words.entries()) one.saw(index, word, now);
    await one.claim(now);
  }
}
const led = (leaders: ShardLeaders) => shards.all.filter((_, index) => leaders.has(index)).length;

test("one pod leads all shards; with others each has its share after some seconds, and it stays so", async () => {
  const first = pod("first");
  await round(first);
  expect(led(first)).toBe(SHARDS);
  const others = [pod("second"), pod("third"), pod("fourth")];
  for (let turn = 0; turn < 40; turn += 1) await round(first, ...others);
  expect([first, ...others].map(led)).toEqual([4, 4, 4, 4]);
  const before = await Promise.all(
    shards.all.map(async ({ tag }) => (await redis.get(`${tag}:leader`))?.split(" ")[0]),
  );
  for (let turn = 0; turn < 8; turn += 1) await round(first, ...others);
  const after = await Promise.all(
    shards.all.map(async ({ tag }) => (await redis.get(`${tag}:leader`))?.split(" ")[0]),
  );
  expect(after).toEqual(before);
});

test("the shards of a dead pod are led by another within two seconds, and a pod that comes back sees it", async () => {
  const [first, second] = [pod("first"), pod("second")];
  await round(first);
  await round(first, second);
  const died = now;
  while (led(second) < SHARDS && now < died + 10_000) await round(second);
  expect(now - died).toBeLessThan(2_000);
  const words = await Promise.all(shards.all.map(({ tag }) => redis.get(`${tag}:leader`)));
  for (const [index, word] of words.entries()) first.saw(index, word, now);
  expect(led(first)).toBe(0);
});

test("a pod that resigns leaves its shards at once, and comes back only after a while", async () => {
  const [first, second] = [pod("first"), pod("second")];
  await round(first);
  await first.resign(now);
  expect(led(first)).toBe(0);
  await round(first, second);
  expect([led(first), led(second)]).toEqual([0, SHARDS]);
  await second.resign(now);
  for (let turn = 0; turn < 9; turn += 1) await round(first);
  expect(led(first)).toBe(SHARDS);
});
