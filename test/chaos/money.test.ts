/**
 * Data planes killed at each step of a request's way, and stores hurt under load (design.md §5). Afterwards a
 * client that saw a complete answer has been charged exactly once for exactly that, and reconcile is exact.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import type { MoneyStep } from "../../dataplane/billing/steps.ts";
import { hasEnded } from "../../hack/processes.ts";
import type { DataPlane } from "../fakes/data-plane.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { Plane } from "../integration/money-world.ts";
import { freshPostgres, freshRedis } from "../integration/stores.ts";
import { World, declaredKey } from "./money-planes.ts";

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

const steps: MoneyStep[] = [
  "open.sent",
  "open.held",
  "advance.held",
  "spend.noted",
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
    await Promise.all(
      Array.from({ length: 6 }, (_, index) => world.ask({ url }, index < 3 ? "tools" : undefined)),
    );
    await sleep(50);
  }
}

describe("a data plane is killed", () => {
  test("at each step of a request's way, one after the other", async () => {
    const { world } = await setUp();
    for (const step of steps) {
      const plane = await world.start(`${step}:${step.startsWith("drain") ? 1 : 3}`);
      // Two before the fatal one, and some that run beside it.
      for (let index = 0; index < 2 && !hasEnded(plane.process); index += 1) await world.ask(plane);
      await askUntilEnd(world, plane);
      expect(plane.process.signalCode, step).toBe("SIGKILL");
    }
    // What the last one left is moved by the next.
    const next = await world.start();
    await world.served(next);
    expect(world.seen.filter(({ complete }) => complete).length).toBeGreaterThan(5);
    await world.judge();
  }, 180_000);

  test("past a Redis that is silent: while neither store has the charge, and before and after Redis is told", async () => {
    const { world, postgres, redis } = await setUp();
    for (const step of ["ledger.waiting", "ledger.charged", "ledger.told"] as const) {
      const plane = await world.start(step);
      const before = world.upstream.requests.length;
      world.faults = { delayHeadersMs: 1_000 };
      let refused = 0;
      const ask = async () => {
        const { status } = await world.ask(plane, "messages");
        if (status === 503) refused += 1;
      };
      const asked = Promise.all(Array.from({ length: 6 }, ask));
      // A data plane of a busy machine may refuse some of them.
      const come = () => world.upstream.requests.length - before + refused;
      await expect.poll(come, { timeout: 20_000 }).toBe(6);
      redis.freeze();
      if (step === "ledger.waiting") await postgres.kill();
      if (step === "ledger.told") await sleep(2_500);
      if (step !== "ledger.told") await asked;
      redis.resume();
      await asked;
      if (step === "ledger.waiting") await postgres.start();
      world.faults = {};
      await askUntilEnd(world, plane);
      expect(plane.process.signalCode, step).toBe("SIGKILL");
    }
    const next = await world.start();
    await world.served(next);
    await world.judge();
  }, 180_000);

  test("after a heartbeat in mid-answer, and the one that sweeps for it after that", async () => {
    const { world, stores } = await setUp();
    // The first may come before all of them run, or while whole answers still do.
    const plane = await world.start("heartbeat.done:2");
    world.faults = { delayAtEvent: { event: 3, ms: 15_000 } };
    // Every other one is streamed and stands still.
    await Promise.all(Array.from({ length: 4 }, () => world.ask(plane, "messages")));
    await expect.poll(() => plane.process.signalCode).toBe("SIGKILL");
    world.faults = {};
    const observer = await Plane.open(stores, { running: false });
    open.push(() => observer.vanish());
    const holds = async () => {
      const counts = observer.holds.shards.map(({ tag }) => observer.redis.zcard(`${tag}:beats`));
      return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
    };
    expect(await holds()).toBe(2);
    await ageHolds(observer);
    const sweeper = await world.start("sweep.done");
    await expect.poll(() => sweeper.process.signalCode, { timeout: 10_000 }).toBe("SIGKILL");
    expect(await holds()).toBeLessThan(2);
    await (await world.start()).stop("SIGTERM");
    const provisional = sql.type(z.object({ count: z.bigint() }))`
      select count(*) as count from usage where provisional
    `;
    expect(await observer.pool.oneFirst(provisional)).toBe(2n);
    await world.judge();
  }, 180_000);
});

/** As if the last heartbeats were long ago. */
async function ageHolds({ holds, redis }: Plane): Promise<void> {
  for (const { tag } of holds.shards) {
    for (const id of await redis.zrange(`${tag}:beats`, "0", "-1")) await redis.zadd(`${tag}:beats`, 1, id);
  }
}

test("a key that was ended is refused by every data plane, though the one that ended it is killed", async () => {
  const { world } = await setUp();
  const keys = [
    declaredKey("ci", sampleKeys.inference),
    declaredKey("second", sampleKeys.narrow),
    declaredKey("third", sampleKeys.suspended),
  ];
  for (const name of ["old", "new"]) await world.publish(name, 1, { apiKeys: keys });
  const other = await world.start();
  const statusWith = async (key: string) => (await world.ask(other, "messages", key)).status;
  const isEnded = async (key: string) => {
    await expect.poll(() => statusWith(key), { timeout: 30_000 }).toBe(401);
  };

  // The other one has copied the first serial, so this one begins with the second.
  const begun = await world.start("directory.begun", "new");
  expect(await statusWith(sampleKeys.narrow)).toBe(200);
  await world.publish("new", 2, { apiKeys: keys.filter(({ name }) => name !== "second") });
  await expect.poll(() => begun.process.signalCode, { timeout: 10_000 }).toBe("SIGKILL");
  const copied = await world.start("directory.copied:2", "new");
  await isEnded(sampleKeys.narrow);

  expect(await statusWith(sampleKeys.suspended)).toBe(200);
  await world.publish("new", 3, { apiKeys: keys.slice(0, 1) });
  await expect.poll(() => copied.process.signalCode, { timeout: 10_000 }).toBe("SIGKILL");
  await isEnded(sampleKeys.suspended);

  const ended = await world.start("keys.ended", "new");
  const path = `${ended.url}/v1/organization/projects/default/api_keys`;
  const headers = { authorization: `Bearer ${sampleKeys.admin}`, "content-type": "application/json" };
  const made = await fetch(path, { method: "POST", headers, body: JSON.stringify({ name: "short-lived" }) });
  const { id, value } = z.object({ id: z.string(), value: z.string() }).parse(await made.json());
  expect(await statusWith(value)).toBe(200);
  await expect(fetch(`${path}/${id}`, { method: "DELETE", headers })).rejects.toThrow("fetch failed");
  await isEnded(value);
  await world.judge();
}, 180_000);

describe("under load, on two data planes", () => {
  test("one killed, Redis flushed, killed and frozen, Postgres killed: nothing is lost and nothing charged twice", async () => {
    const { world, postgres, redis, stores } = await setUp();
    const planes: DataPlane[] = [await world.start(), await world.start()];
    const stopped = new AbortController();
    const load = world.load(() => planes, 8, stopped.signal);
    const observer = await Plane.open(stores, { running: false });
    open.push(() => observer.vanish());

    await sleep(1_000);
    expect(
      (await reconcileLedger(observer.pool, observer.redis)).broken,
      "beside running data planes",
    ).toEqual([]);
    const [killed] = planes.splice(0, 1);
    await killed?.stop("SIGKILL");
    planes.push(await world.start());
    await sleep(1_000);
    await observer.flush();
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

    const complete = () => world.seen.filter((one) => one.complete).length;
    await expect.poll(complete, { timeout: 40_000 }).toBeGreaterThan(50);
    stopped.abort();
    await load;
    await world.judge();
  }, 180_000);
});
