import type { RedisStore } from "../store/redis-servers.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freshRedis, type TestStore } from "../../test/integration/stores.ts";
import { openRedis, redisReady } from "../store/redis.ts";
import { redisCallLimit } from "./call-limit.ts";

let server: TestStore;
let pods: RedisStore[];
beforeAll(async () => {
  server = await freshRedis();
  pods = [1, 2].map(() => openRedis(server.url, { onError: () => undefined }));
  await Promise.all(pods.map((redis) => redisReady(redis, 5_000)));
});
afterAll(async () => {
  for (const redis of pods) redis.disconnect();
  await server.stop();
});

test("60 tool calls per minute per account, counted over all pods; what is refused does not count", async () => {
  const [one, two] = pods.map(redisCallLimit);
  if (one === undefined || two === undefined) throw new Error("two pods");
  const first = await Promise.all(Array.from({ length: 40 }, () => one("org_a", 60)));
  const second = await Promise.all(Array.from({ length: 40 }, () => two("org_a", 60)));
  expect([...first, ...second].filter(Boolean)).toHaveLength(60);
  expect(await one("org_b", 60)).toBe(true);
  // A minute later: as if the oldest calls had been made before it.
  const key = "gapura:tool-calls:{org_a}";
  const members = (await pods[0]?.zrange(key, "0", "9")) ?? [];
  for (const member of members) await pods[0]?.zadd(key, String(Date.now() - 61_000), member);
  expect(await two("org_a", 70)).toBe(true);
  expect(await pods[0]?.zcard(key)).toBe(51);
});

test("rule 12.8: a step back of Redis' clock refuses nobody for longer than a minute", async () => {
  const [one] = pods.map(redisCallLimit);
  if (one === undefined) throw new Error("a pod");
  for (let call = 0; call < 3; call += 1) expect(await one("org_c", 3)).toBe(true);
  // As if they had been made before the clock went back by an hour; Redis expires by the same clock.
  const key = "gapura:tool-calls:{org_c}";
  for (const member of (await pods[0]?.zrange(key, "0", "-1")) ?? [])
    await pods[0]?.zadd(key, String(Date.now() + 3_600_000), member);
  await pods[0]?.pexpire(key, 3_660_000);
  // They count as made now: no limit is freed.
  expect(await one("org_c", 3)).toBe(false);
  expect(await pods[0]?.zcount(key, "-inf", String(Date.now() + 1_000))).toBe(3);
  // More than a minute later, which the expiry must not outlast either.
  expect(await pods[0]?.pttl(key)).toBeLessThanOrEqual(60_000);
});
