/**
 * Data planes killed at each step of a request's way, and stores hurt under load (design.md §5). Afterwards a
 * client that saw a complete answer has been charged exactly once for exactly that, and the audit is exact.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { audit } from "../../dataplane/billing/audit.ts";
import type { Step } from "../../dataplane/billing/steps.ts";
import { hasEnded } from "../../hack/processes.ts";
import { Plane } from "../integration/money-world.ts";
import { freshPostgres, freshRedis } from "../integration/stores.ts";
import { World, type DataPlane } from "./money-planes.ts";

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

async function setUp() {
  const [postgres, redis] = await Promise.all([freshPostgres(), freshRedis()]);
  open.push(async () => {
    await Promise.all([postgres[Symbol.asyncDispose](), redis[Symbol.asyncDispose]()]);
  });
  const stores = { redisUrl: redis.url, postgresUrl: postgres.url };
  const world = await World.open(stores);
  open.push(() => world.close());
  return { world, postgres, redis, stores };
}

const steps: Step[] = [
  "open.sent",
  "open.held",
  "settle.sent",
  "settle.charged",
  "drain.read",
  "drain.stored",
  "drain.done",
];

/** On a busy machine a request may be refused before it reaches the fatal step. */
async function askUntilEnd(world: World, { url, process }: DataPlane): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!hasEnded(process) && Date.now() < deadline) {
    await Promise.all(Array.from({ length: 6 }, () => world.ask({ url })));
    await sleep(50);
  }
}

describe("a data plane is killed", () => {
  test("at each step of a request's way, one after the other", async () => {
    const { world, redis } = await setUp();
    for (const step of steps) {
      const plane = await world.start(`${step}:${step.startsWith("drain") ? 1 : 3}`);
      // Two before the fatal one, and some that run beside it.
      for (let index = 0; index < 2 && !hasEnded(plane.process); index += 1) await world.ask(plane);
      await askUntilEnd(world, plane);
      expect(plane.process.signalCode, step).toBe("SIGKILL");
    }
    // The way past a Redis that is silent: the ledger has the charges, and nobody tells Redis any more.
    const plane = await world.start("ledger.charged");
    const before = world.upstream.requests.length;
    world.thinkMs = 1_000;
    const asked = Promise.all(Array.from({ length: 6 }, () => world.ask(plane)));
    await world.upstream.arrived(before + 6);
    redis.freeze();
    await asked;
    redis.resume();
    world.thinkMs = 0;
    await askUntilEnd(world, plane);
    expect(plane.process.signalCode).toBe("SIGKILL");
    // What the last one left is moved by the next.
    const next = await world.start();
    expect((await world.ask(next)).complete).toBe(true);
    expect(world.seen.filter(({ complete }) => complete).length).toBeGreaterThan(5);
    await world.judge();
  }, 120_000);
});

describe("under load, on two data planes", () => {
  test("one killed, Redis flushed, killed and frozen, Postgres killed: nothing is lost and nothing charged twice", async () => {
    const { world, postgres, redis, stores } = await setUp();
    const planes: DataPlane[] = [await world.start(), await world.start()];
    const stopped = new AbortController();
    const load = world.load(() => planes, 8, stopped.signal);
    const observer = await Plane.open(stores, { running: false });
    open.push(() => observer.vanish());

    await sleep(1_000);
    expect((await audit(observer.pool, observer.redis)).broken, "beside running data planes").toEqual([]);
    const [killed] = planes.splice(0, 1);
    await killed?.stop("SIGKILL");
    planes.push(await world.start());
    await sleep(1_000);
    await observer.redis.flushall();
    await sleep(1_500);
    await redis.kill();
    await sleep(200);
    await redis.start();
    await sleep(1_500);
    redis.freeze();
    await sleep(2_500);
    redis.resume();
    await sleep(1_000);
    await postgres.kill();
    await sleep(1_000);
    await postgres.start();
    await sleep(1_500);

    stopped.abort();
    await load;
    const complete = world.seen.filter((one) => one.complete).length;
    expect(complete).toBeGreaterThan(50);
    await world.judge();
  }, 120_000);
});
