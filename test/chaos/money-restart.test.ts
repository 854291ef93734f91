/** What of the meter goes to Redis' file, and what a restarted or promoted Redis makes of what it finds there. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { epochKeys, operation, shardOf, shardTag } from "../../dataplane/billing/holds/shard.ts";
import { redisReady } from "../../dataplane/store/redis.ts";
import { Plane, makeOrganization, observed, request, usage } from "../integration/money-world.ts";
import {
  freshDatabase,
  freshRedis,
  rewriteFile,
  type TestDatabase,
  type TestStore,
} from "../integration/stores.ts";

const tag = shardTag(shardOf("org"));
let database: TestDatabase;
let redis: TestStore;
let plane: Plane;
const openPlane = (staleMs: number) =>
  Plane.open({ redisUrl: redis.url, postgresUrl: database.url }, { running: false, rhythm: { staleMs } });
beforeEach(async () => {
  [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
  plane = await openPlane(45_000);
  await makeOrganization(plane.pool, "org", 1_000n);
  await (await plane.holds.open(request("org"), 1n)).release();
});
afterEach(async () => {
  await plane.vanish();
  await redis[Symbol.asyncDispose]();
  await database.drop();
});

const open = (amount: bigint) => plane.holds.open(request("org"), amount);
async function restart(...planes: readonly Plane[]): Promise<void> {
  await redis.kill();
  await redis.start();
  await Promise.all([later(), ...planes.map((one) => redisReady(one.redis, 5_000))]);
}
/** The next call notes the clock, and looks whose data it is (CLOCK_WRITTEN in meter-shard.lua). */
const later = () => sleep(250);
const fileSize = async () =>
  Number(/aof_current_size:(\d+)/.exec(await plane.redis.info("persistence"))?.[1]);
const credit = async (of = plane) => await of.holds.standing.credit("org");
const broken = async () => (await reconcileLedger(plane.pool, plane.redis)).broken;

describe("Redis' file", () => {
  test("hears nothing of a request that only runs, so that nobody waits for a disk", async () => {
    const before = await fileSize();
    const bill = await open(100n);
    await plane.holds.heartbeat();
    await (await open(50n)).release();
    expect(await fileSize()).toBe(before);
    expect(await credit()).toMatchObject({ held: 100n, available: 900n });
    await bill.settle(usage(30));
    expect(await fileSize()).toBeGreaterThan(before);
  });

  test("has what was observed of a running request, which is charged though owner and Redis both die", async () => {
    const [seen, advanced] = [await open(100n), await open(100n)];
    // Of this one nothing is observed.
    await open(100n);
    seen.observe(observed(40));
    await plane.holds.heartbeat();
    await advanced.advance(observed(20), 50n);
    await plane.vanish();
    plane = await openPlane(-1);
    await restart(plane);
    await plane.upkeep.sweep();
    expect(await plane.upkeep.drain()).toBe(2);
    expect(await credit()).toEqual({ granted: 1_000n, used: 60n, held: 0n, available: 940n });
    // Nothing is left to be charged by the next one that starts.
    await restart(plane);
    await plane.upkeep.sweep();
    expect([await plane.upkeep.drain(), await broken()]).toEqual([0, []]);
    expect((await plane.redis.keys(`${tag}:r:*`)).length).toBe(2);
  });
});

describe("a Redis that was restarted", () => {
  test("counts no hold of its earlier run, whatever its file says of it, until the owner takes it again", async () => {
    const [runs, ends, charged] = [await open(300n), await open(300n), await open(300n)];
    await rewriteFile(plane.server);
    await ends.release();
    await charged.settle(usage(10));
    const other = await openPlane(45_000);
    try {
      await restart(plane, other);
      expect(await credit(other)).toEqual({ granted: 1_000n, used: 10n, held: 0n, available: 990n });
      expect(await broken()).toEqual([]);
      const late = await other.holds.open(request("org"), 500n);
      // Its own next call tells the owner.
      expect(await credit()).toMatchObject({ held: 800n, available: 190n });
      await runs.settle(usage(20));
      await late.settle(usage(5));
      expect(await credit()).toEqual({ granted: 1_000n, used: 35n, held: 0n, available: 965n });
      expect(await broken()).toEqual([]);
    } finally {
      await other.vanish();
    }
  });

  test("has exact books before any data plane has asked it", async () => {
    const bill = await open(100n);
    bill.observe(observed(10));
    await plane.holds.heartbeat();
    await restart(plane);
    expect(await broken()).toEqual([]);
    await bill.settle(usage(20));
    expect(await credit()).toMatchObject({ used: 20n, held: 0n });
    expect(await broken()).toEqual([]);
  });

  test("is swept clean of what its file kept of them", async () => {
    const bills = await Promise.all(Array.from({ length: 20 }, () => open(10n)));
    await rewriteFile(plane.server);
    await Promise.all(bills.map((bill) => bill.release()));
    await plane.vanish();
    plane = await openPlane(-1);
    await restart(plane);
    expect(await plane.redis.zcard(`${tag}:beats`)).toBe(20);
    await plane.upkeep.sweep();
    expect(await plane.redis.exists(`${tag}:beats`)).toBe(0);
    await restart(plane);
    expect(await plane.redis.keys(`${tag}:r:*`)).toEqual([]);
    expect([await plane.upkeep.drain(), await broken()]).toEqual([0, []]);
  });

  test("still knows what was charged before, so that nothing is charged twice", async () => {
    const bill = await open(100n);
    await bill.settle(usage(30));
    await restart(plane);
    const repeated = await plane.holds.shards[shardOf("org")]?.run(
      operation("retake", "org", bill.request.id, "100", "0", "", "0", ""),
      1_000,
    );
    expect(repeated).toEqual(["done"]);
    expect(await plane.upkeep.drain()).toBe(1);
    expect(await credit()).toMatchObject({ used: 30n, held: 0n });
  });
});

describe("a Redis that was restarted with a full memory", () => {
  test.each([
    ["nothing runs", 0],
    ["a request runs", 1],
  ])("is drained all the same: %s", async (_title, running) => {
    for (let count = 0; count < 5; count += 1) await (await open(10n)).settle(usage(3));
    const bills = await Promise.all(Array.from({ length: running }, () => open(10n)));
    await restart(plane);
    await plane.redis.config("SET", "maxmemory", "1");
    expect(await plane.upkeep.drain()).toBe(5);
    expect(await credit()).toMatchObject({ used: 15n, held: BigInt(10 * running) });
    await plane.redis.config("SET", "maxmemory", "0");
    for (const bill of bills) await bill.release();
    expect(await broken()).toEqual([]);
  });
});

test("a full memory learns of a charge that went to the ledger before its hold is given back", async () => {
  const [bill, other] = [await open(100n), await open(100n)];
  await plane.redis.config("SET", "maxmemory", "1");
  await bill.settle(usage(90));
  await plane.holds.payOwed();
  const [, late] = await Promise.all([other.release(), open(950n)]);
  expect(late.amount).toBe(910n);
  await plane.redis.config("SET", "maxmemory", "0");
  await late.release();
  expect(await broken()).toEqual([]);
});

test("two databases of one server restart each by itself", async () => {
  await using second = await freshDatabase();
  const beside = await Plane.open(
    { redisUrl: `${redis.url}/1`, postgresUrl: second.url },
    { running: false, rhythm: { staleMs: -1 } },
  );
  try {
    await makeOrganization(beside.pool, "org", 1_000n);
    const bill = await beside.holds.open(request("org"), 300n);
    await rewriteFile(plane.server);
    await bill.settle(usage(30));
    await restart(plane, beside);
    await plane.upkeep.sweep();
    await beside.upkeep.sweep();
    expect(await credit(beside)).toEqual({ granted: 1_000n, used: 30n, held: 0n, available: 970n });
    expect((await reconcileLedger(beside.pool, beside.redis)).broken).toEqual([]);
  } finally {
    await beside.vanish();
  }
});

/** Another server, which follows the first. */
async function withReplica(
  use: (there: Plane, follow: () => Promise<void>, lead: () => Promise<void>) => Promise<void>,
) {
  await using replica = await freshRedis();
  const there = await Plane.open(
    { redisUrl: replica.url, postgresUrl: database.url },
    { running: false, rhythm: { staleMs: -1 } },
  );
  const follow = async () => {
    await there.redis.replicaof("127.0.0.1", new URL(redis.url).port);
    const isLinked = async () => /master_link_status:up/.test(await there.redis.info("replication"));
    await expect.poll(isLinked, { timeout: 20_000 }).toBe(true);
  };
  const lead = async () => void (await there.redis.replicaof("NO", "ONE"));
  try {
    await follow();
    await use(there, follow, lead);
  } finally {
    await there.vanish();
  }
}

describe("the epoch", () => {
  const leadTo = async (port = 0) => {
    plane.server.options.port = port;
    plane.server.disconnect(true);
    await expect.poll(() => plane.server.status).toBe("ready");
  };
  const epochs = (of = plane) => of.redis.mget(...epochKeys);

  test("does not change with its scripts, which each upgrade brings anew", async () => {
    await plane.upkeep.sweep();
    const before = await epochs();
    expect(before).not.toContain(null);
    await later();
    await plane.redis.script("FLUSH");
    await plane.upkeep.sweep();
    expect(await epochs()).toEqual(before);
  });

  test("does not change when it gets its first replica, though its history has another name then", async () => {
    await plane.upkeep.sweep();
    const before = await epochs();
    const history = async () => /master_replid:\w+/.exec(await plane.redis.info("replication"))?.[0];
    const name = await history();
    await withReplica(async () => {
      expect(await history()).not.toBe(name);
      await later();
      await plane.upkeep.sweep();
      expect(await epochs()).toEqual(before);
    });
  });

  // As behind a proxy, which does not tell that another server answers.
  test("changes with the server that answers: what a replica had not heard yet is charged again", async () => {
    await withReplica(async (there, follow, lead) => {
      await lead();
      await later();
      await there.upkeep.sweep();
      await follow();
      const runs = await open(100n);
      await expect.poll(() => there.redis.exists(`${tag}:r:${runs.request.id}`)).toBe(1);
      await lead();
      await (await open(50n)).settle(usage(30));
      // The client's next connection leads there. Nobody asks for a `run_id`.
      await leadTo(there.server.options.port);
      await later();
      await (await open(1n)).release();
      expect(await credit()).toEqual({ granted: 1_000n, used: 30n, held: 100n, available: 870n });
      expect((await reconcileLedger(there.pool, there.redis)).broken).toEqual([]);
      await runs.release();
      expect(await credit()).toEqual({ granted: 1_000n, used: 30n, held: 0n, available: 970n });
    });
  });

  test("ends when it starts from its file, though nobody asks it before a master of before has its data", async () => {
    await withReplica(async (there, follow, lead) => {
      const bill = await open(100n);
      bill.observe(observed(10));
      await plane.holds.heartbeat();
      // The replica has been master in this run, and knows all scripts and epochs.
      await lead();
      await there.upkeep.drain();
      const before = await epochs();
      await restart(plane);
      await follow();
      await lead();
      expect(await there.redis.exists(`${tag}:r:${bill.request.id}`)).toBe(1);
      expect(await epochs(there)).toEqual(before);
      await later();
      // Nobody keeps it alive there: it is charged for what was observed, and its hold is in no sum any more.
      await there.upkeep.sweep();
      expect(Number(await there.redis.hget(`${tag}:o:org`, "held"))).toBe(0);
      await there.upkeep.drain();
      expect(await credit(there)).toMatchObject({ used: 10n, held: 0n, available: 990n });
      expect((await reconcileLedger(there.pool, there.redis)).broken).toEqual([]);
      expect((await epochs(there)).filter((epoch, index) => epoch === before[index])).toEqual([]);
    });
  });
});

test("a replica hears of holds, as it may be the next that is asked", async () => {
  await withReplica(async (there) => {
    const bill = await open(400n);
    await expect.poll(() => there.redis.exists(`${tag}:r:${bill.request.id}`)).toBe(1);
    expect(await there.redis.hmget(`${tag}:o:org`, "held", "live")).toEqual(["400", "1"]);
    await bill.release();
    await expect.poll(() => there.redis.hget(`${tag}:o:org`, "held")).toBe("0");
  });
});
