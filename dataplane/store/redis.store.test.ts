import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { RedisStore } from "./redis-servers.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { freshRedis, singleRedis, type TestStore } from "../../test/integration/stores.ts";
import { checkRedis } from "./ready.ts";
import { loadScript, openRedis, redisReady } from "./redis.ts";

const folder = mkdtempSync(join(tmpdir(), "gapura-lua-"));
let store: TestStore;
let redis: RedisStore;

beforeAll(async () => {
  store = await freshRedis();
  redis = openRedis(store.url, { onError: () => {}, commandTimeoutMs: 300 });
  await redisReady(redis, 5_000);
});
afterAll(async () => {
  redis.disconnect();
  await store[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

function script<Reply>(lua: string, schema: z.ZodType<Reply>) {
  const file = join(folder, "script.lua");
  writeFileSync(file, lua);
  return loadScript(pathToFileURL(file), (reply) => schema.parse(reply));
}

test("a script's reply is typed, and amounts stay exact beyond what Lua's numbers hold", async () => {
  const add = script(
    "redis.call('HINCRBY', KEYS[1], 'base', ARGV[1]) return redis.call('HGET', KEYS[1], 'base')",
    z.string(),
  );
  await add(redis, ["{0}:account"], ["9007199254740993"]);
  expect(await add(redis, ["{0}:account"], ["2"])).toBe("9007199254740995");
});

test("a script works again after the server forgot it", async () => {
  const pong = script("return 'pong'", z.literal("pong"));
  await pong(redis, [], []);
  await redis.script("FLUSH");
  expect(await pong(redis, [], [])).toBe("pong");
});

test("a reply of another form is an error", async () => {
  await expect(script("return 7", z.string())(redis, [], [])).rejects.toThrow(/expected string/);
});

test("a server that does not answer fails the command in time, and is not asked again later", async () => {
  store.freeze();
  await expect(redis.incr("frozen")).rejects.toThrow(/timed out/);
  store.resume();
});

test("while the server is away commands fail at once; what was acknowledged is there after SIGKILL", async () => {
  await redis.set("kept", "yes");
  await store.kill();
  await expect(redis.get("kept")).rejects.toThrow(/closed|writeable|retries/);
  const times: number[] = [];
  for (let attempt = 0; attempt < 3; attempt += 1) {
    const started = performance.now();
    await expect(redis.get("kept")).rejects.toThrow(/closed|writeable|retries/);
    times.push(performance.now() - started);
  }
  // The machine may be at something else in one of them.
  expect(Math.min(...times)).toBeLessThan(100);
  await store.start();
  await redisReady(redis, 5_000);
  expect(await redis.get("kept")).toBe("yes");
});

test("the server refuses to evict: money lives there", async () => {
  expect(await redis.config("GET", "maxmemory-policy")).toContain("noeviction");
});

test("who cannot connect is told why, and no longer once it is connected", async () => {
  await using server = await singleRedis();
  const owner = openRedis(server.url, { onError: () => {} });
  await redisReady(owner, 5_000);
  await owner.config("SET", "requirepass", "right");
  const stranger = openRedis(server.url.replace("//", "//:wrong@"), { onError: () => {} });
  try {
    await expect(redisReady(stranger, 300)).rejects.toThrow(/not reachable \(waited 300 ms\): WRONGPASS/);
    await expect(checkRedis(stranger)).rejects.toThrow(/^not connected: WRONGPASS/);
    await owner.config("SET", "requirepass", "wrong");
    await redisReady(stranger, 5_000);
    expect(await checkRedis(stranger)).toBe(null);
  } finally {
    owner.disconnect();
    stranger.disconnect();
  }
});

test("a Redis whose memory is full is told of: it takes no holds", async () => {
  await using server = await singleRedis();
  const client = openRedis(server.url, { onError: () => {} });
  try {
    await redisReady(client, 5_000);
    expect(await checkRedis(client)).toBe(null);
    await client.config("SET", "maxmemory", "100kb");
    await expect(client.set("more", "x")).rejects.toThrow(/^OOM/);
    expect(await checkRedis(client)).toEqual({ degraded: expect.stringMatching(/^its memory is full/) });
  } finally {
    client.disconnect();
  }
});
