/**
 * Two faults within one window, on real data planes (docs/decisions/money.md): whoever saw a complete answer has been
 * charged exactly once for exactly that, and the audit is exact.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { Plane } from "../integration/money-world.ts";
import { freshPostgres, freshRedis } from "../integration/stores.ts";
import { World } from "./money-planes.ts";
import { tcpProxy } from "./tcp-proxy.ts";

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

async function setUp() {
  const [postgres, redis] = await Promise.all([freshPostgres(), freshRedis()]);
  open.push(async () => {
    await Promise.all([postgres[Symbol.asyncDispose](), redis[Symbol.asyncDispose]()]);
  });
  const proxy = await tcpProxy(postgres.url);
  open.push(() => proxy.close());
  const world = await World.open({ redisUrl: redis.url, postgresUrl: proxy.url });
  open.push(() => world.close());
  const observer = await Plane.open({ redisUrl: redis.url, postgresUrl: postgres.url }, { running: false });
  open.push(() => observer.vanish());
  return { world, proxy, postgres, redis, observer };
}
const complete = ({ seen }: World) => seen.filter((one) => one.complete).length;

test("Redis is flushed and the data plane is told to end at once: what it answered is charged", async () => {
  const { world, proxy, observer } = await setUp();
  const plane = await world.start();
  await Promise.all(Array.from({ length: 20 }, () => world.ask(plane)));
  // Nothing more reaches the ledger, so all depends on what the data plane does when it ends.
  proxy.cutOff();
  await Promise.all(Array.from({ length: 20 }, () => world.ask(plane)));
  expect(complete(world)).toBe(40);
  await observer.redis.flushall();
  proxy.reconnect();
  await plane.stop("SIGTERM");
  await world.judge();
}, 120_000);

test("Redis is flushed, and half a second later the data plane is killed: what it answered is charged", async () => {
  const { world, proxy, observer } = await setUp();
  const plane = await world.start();
  await world.ask(plane);
  proxy.cutOff();
  await Promise.all(Array.from({ length: 20 }, () => world.ask(plane)));
  await observer.redis.flushall();
  const waiting = async () => {
    const counts = await Promise.all(
      observer.holds.shards.map(({ tag }) => observer.redis.get(`${tag}:waiting`)),
    );
    return counts.reduce((sum, count) => sum + Number(count ?? 0), 0);
  };
  const flushed = performance.now();
  while ((await waiting()) < 20 && performance.now() - flushed < 5_000) await sleep(5);
  // Rule 1.9 gives it half a second; a machine that others use may need longer.
  expect(performance.now() - flushed).toBeLessThan(1_500);
  await plane.stop("SIGKILL");
  proxy.reconnect();
  await world.judge();
}, 120_000);

test("Postgres comes back without its last transactions under load: what they held is charged again", async () => {
  const { world, postgres, observer } = await setUp();
  const planes = [await world.start(), await world.start()];
  const stopped = new AbortController();
  const load = world.load(() => planes, 6, stopped.signal);
  await sleep(1_500);
  await postgres.save();
  await sleep(2_000);
  await postgres.rollBack();
  await sleep(4_000);
  stopped.abort();
  await load;
  expect(complete(world)).toBeGreaterThan(50);
  // Each data plane looks every two seconds which Postgres answers, and charges again what it knows.
  await expect
    .poll(() => observer.upkeep.look().then(() => observer.holds.fault), { timeout: 20_000 })
    .toBeNull();
  await sleep(4_000);
  await world.judge();
}, 180_000);
