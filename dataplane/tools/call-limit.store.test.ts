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
