import type { RedisStore } from "../store/redis-servers.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { freshRedis, type TestStore } from "../../test/integration/stores.ts";
import { openRedis, redisReady } from "../store/redis.ts";
import { MAX_ENTRY_BYTES, redisToolCache } from "./cache.ts";

let server: TestStore;
let redis: RedisStore;

beforeAll(async () => {
  server = await freshRedis();
  redis = openRedis(server.url, { onError: () => undefined });
  await redisReady(redis, 5_000);
});
afterAll(async () => {
  redis.disconnect();
  await server.stop();
});
beforeEach(async () => {
  await redis.flushall();
});

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe("the tools' cache in Redis", () => {
  test("keeps bytes as they are, for their time", async () => {
    const cache = redisToolCache(redis);
    const bytes = Buffer.from([0, 255, 128, 10, 13]);
    await cache.set("org_a", "a", bytes, 60_000);
    expect(await cache.get("a")).toEqual(bytes);
    expect(await cache.get("b")).toBeNull();
    await cache.set("org_a", "c", bytes, 50);
    await pause(80);
    expect([await cache.get("c"), await cache.get("a")]).toEqual([null, bytes]);
  });

  test("a later value replaces an earlier one", async () => {
    const cache = redisToolCache(redis);
    await cache.set("org_a", "a", Buffer.from("one"), 10_000);
    await cache.set("org_a", "a", Buffer.from("three"), 10_000);
    expect((await cache.get("a"))?.toString()).toBe("three");
    expect(await redis.get("gapura:{tool-cache}:total")).toBe(String("three".length + 1));
  });

  test("entries over 1 MiB and entries without time are not kept", async () => {
    const cache = redisToolCache(redis);
    await cache.set("org_a", "big", Buffer.alloc(MAX_ENTRY_BYTES + 1), 10_000);
    await cache.set("org_a", "fits", Buffer.alloc(MAX_ENTRY_BYTES), 10_000);
    await cache.set("org_a", "short", Buffer.from("x"), 0);
    expect(await cache.get("big")).toBeNull();
    expect(await cache.get("fits")).toHaveLength(MAX_ENTRY_BYTES);
    expect(await cache.get("short")).toBeNull();
  });

  test("the total is capped: what expires soonest goes first", async () => {
    const cache = redisToolCache(redis, 3_500);
    for (const [index, key] of ["a", "b", "c", "d"].entries()) {
      await cache.set("org_a", key, Buffer.alloc(1_000), 60_000 + index * 1_000);
    }
    expect(await cache.get("a")).toBeNull();
    expect(await cache.get("d")).toHaveLength(1_000);
    expect(Number(await redis.get("gapura:{tool-cache}:total"))).toBeLessThanOrEqual(3_500);
    await cache.set("org_a", "larger than all", Buffer.alloc(4_000), 60_000);
    expect(await cache.get("larger than all")).toBeNull();
  });

  test("who has most gives way: one organization's many push out nothing of another's few", async () => {
    const cache = redisToolCache(redis, 10_500);
    await cache.set("org_few", "few", Buffer.alloc(1_000), 1_000);
    for (let index = 0; index < 30; index += 1)
      await cache.set("org_many", `many ${index}`, Buffer.alloc(1_000), 60_000 + index * 1_000);
    expect(await cache.get("few")).toHaveLength(1_000);
    expect([await cache.get("many 0"), (await cache.get("many 29"))?.length]).toEqual([null, 1_000]);
    // Who comes later gets as much, at the expense of who has most.
    for (let index = 0; index < 5; index += 1)
      await cache.set("org_late", `late ${index}`, Buffer.alloc(1_000), 500_000);
    expect(await Promise.all([0, 1, 2, 3, 4].map((index) => cache.get(`late ${index}`)))).not.toContain(null);
    expect(await cache.get("few")).toHaveLength(1_000);
    expect(Number(await redis.get("gapura:{tool-cache}:total"))).toBeLessThanOrEqual(10_500);
  });

  test("nothing of an organization is kept beyond its last entry", async () => {
    const cache = redisToolCache(redis);
    await cache.set("org_a", "a", Buffer.alloc(1_000), 50);
    await cache.set("org_a", "a", Buffer.alloc(10), 50);
    await pause(80);
    await cache.set("org_b", "b", Buffer.alloc(10), 10_000);
    const kept = ["entry:b", "index", "of:org_b", "owners", "shares", "sizes", "total"];
    expect((await redis.keys("*")).toSorted()).toEqual(kept.map((name) => `gapura:{tool-cache}:${name}`));
    expect(await redis.zrange("gapura:{tool-cache}:shares", "0", "-1", "WITHSCORES")).toEqual([
      "org_b",
      "11",
    ]);
  });

  test("expired entries leave the total and the index", async () => {
    const cache = redisToolCache(redis);
    await cache.set("org_a", "a", Buffer.alloc(1_000), 50);
    await pause(80);
    await cache.set("org_a", "b", Buffer.alloc(10), 10_000);
    expect(await redis.get("gapura:{tool-cache}:total")).toBe("11");
    expect(await redis.zrange("gapura:{tool-cache}:index", "0", "-1")).toEqual(["b"]);
  });

  test("a store that is away is a miss, not an error", async () => {
    const away = openRedis("redis://127.0.0.1:1", { onError: () => undefined });
    const cache = redisToolCache(away);
    await cache.set("org_a", "a", Buffer.from("x"), 1_000);
    expect(await cache.get("a")).toBeNull();
    const silent = vi.fn();
    expect(await cache.get("a", silent)).toBeNull();
    expect(silent).toHaveBeenCalledTimes(1);
    away.disconnect();
  });
});
