/**
 * A Redis Cluster under the meter (rules 12.1, 12.2): shards lie apart, and what happens to one master concerns its shards
 * alone. After each fault the audit is exact, and each acknowledged answer is charged once.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { redisWakeUps } from "../../dataplane/batches/worker/wake-ups.ts";
import { SHARDS, shardOf } from "../../dataplane/billing/holds/shard.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { allServers, masterName } from "../../dataplane/store/redis-servers.ts";
import { redisCallLimit } from "../../dataplane/tools/call-limit.ts";
import { redisToolCache } from "../../dataplane/tools/cache.ts";
import { checkRedis } from "../../dataplane/store/ready.ts";
import { Plane, makeOrganization, request, usage } from "../integration/money-world.ts";
import { startRedisCluster, type RedisCluster } from "../integration/redis-cluster.ts";
import { freshDatabase, type TestDatabase } from "../integration/stores.ts";

const COST = 3;
let cluster: RedisCluster;
let database: TestDatabase;
let planes: readonly Plane[];

/** One for each shard. */
const organizations: readonly string[] = Array.from({ length: SHARDS }, (_, shard) => {
  for (let n = 0; ; n += 1) if (shardOf(`org_${n}`) === shard) return `org_${n}`;
});
const all = [...organizations.keys()];

beforeAll(async () => {
  [cluster, database] = await Promise.all([startRedisCluster(), freshDatabase()]);
  const stores = { redisUrl: cluster.url, postgresUrl: database.url };
  const rhythm = { heartbeatMs: 500, sweepMs: 500, accountsMs: 500 };
  planes = await Promise.all([Plane.open(stores, { rhythm }), Plane.open(stores, { rhythm })]);
  for (const organization of organizations)
    await makeOrganization(planes[0]!.pool, organization, 10_000_000n);
}, 120_000);
afterAll(async () => {
  await Promise.all((planes ?? []).map((plane) => plane.close()));
  await cluster?.[Symbol.asyncDispose]();
  await database?.drop();
});

interface Refusal {
  readonly shard: number;
  readonly at: number;
}

/** Requests one after another for each shard in each of the planes, until it is stopped. */
function load() {
  const charged = new Set<string>();
  const ofShard = organizations.map(() => 0);
  const faults: unknown[] = [];
  const refusals: Refusal[] = [];
  const stopped = new AbortController();
  const line = async (plane: Plane, shard: number) => {
    while (!stopped.signal.aborted) {
      const asked = request(organizations[shard]!);
      try {
        const bill = await plane.holds.open(asked, 100n);
        await sleep(20);
        await bill.settle(usage(COST));
        charged.add(asked.id);
        ofShard[shard]! += 1;
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== "unavailable") faults.push(error);
        refusals.push({ shard, at: performance.now() });
      }
      await sleep(20);
    }
  };
  const lines = planes.flatMap((plane) => organizations.map((_, shard) => line(plane, shard)));
  return {
    charged,
    ofShard,
    faults,
    refusals,
    /** Resolves when each of the shards has had so many more answers. */
    more: async (count: number, shards: readonly number[] = all) => {
      const before = [...ofShard];
      await expect
        .poll(() => shards.filter((shard) => ofShard[shard]! < before[shard]! + count), { timeout: 40_000 })
        .toEqual([]);
    },
    stop: async () => {
      stopped.abort();
      await Promise.all(lines);
    },
  };
}

async function judge({ charged, faults }: ReturnType<typeof load>): Promise<void> {
  expect(faults).toEqual([]);
  const [plane] = planes;
  const wronglyCharged = async () => {
    const rows = await plane!.pool.any(
      sql.type(z.object({ id: z.string(), cost: z.bigint() }))`select id, cost_micros as cost from usage`,
    );
    const known = new Map(rows.map(({ id, cost }) => [id, cost]));
    return [...charged].filter((id) => known.get(id) !== BigInt(COST));
  };
  await expect.poll(wronglyCharged, { timeout: 30_000 }).toEqual([]);
  const broken = async () => (await reconcileLedger(plane!.pool, plane!.redis)).broken;
  await expect.poll(broken, { timeout: 30_000 }).toEqual([]);
}

async function shardsOf(port: number): Promise<number[]> {
  const masters = await Promise.all(organizations.map((_, shard) => cluster.masterOf(shard)));
  return masters.flatMap((master, shard) => (master === port ? [shard] : []));
}

const ready = () => checkRedis(planes[0]!.redis);

test("each shard's keys lie in one slot, and the shards evenly on the masters", async () => {
  const traffic = load();
  await traffic.more(5);
  await traffic.stop();
  expect(traffic.refusals).toEqual([]);
  const counts = await Promise.all(
    (await cluster.masters()).map(async (port) => (await shardsOf(port)).length),
  );
  expect(counts.toSorted((one, other) => one - other)).toEqual([5, 5, 6]);
  expect(await ready()).toBeNull();
  await judge(traffic);
}, 120_000);

test("caches, tool limits and wake-ups go to the cluster too, scripts that it has forgotten as well", async () => {
  const [one, other] = planes.map(({ redis }) => redis);
  for (const server of allServers(one!)) await server.script("FLUSH");
  const cache = redisToolCache(one!);
  await cache.set("org_a", "page", Buffer.from("text"), 60_000);
  expect(await redisToolCache(other!).get("page")).toEqual(Buffer.from("text"));
  const admitted: boolean[] = [];
  for (const redis of [one!, other!, one!]) admitted.push(await redisCallLimit(redis)("org_calls", 2));
  expect(admitted).toEqual([true, true, false]);
  const [bell, listener] = [redisWakeUps(one!), redisWakeUps(other!)];
  let woken = 0;
  listener.listen(() => (woken += 1));
  await expect
    .poll(() => {
      bell.send();
      return woken;
    })
    .toBeGreaterThan(0);
  bell.close();
  listener.close();
});

test.each(["planned", "SIGKILL", "SIGSTOP"] as const)(
  "a master is replaced (%s): only its shards refuse, and only while there is none",
  async (how) => {
    await cluster.settled();
    const traffic = load();
    await traffic.more(3);
    const [port = 0] = await cluster.masters();
    const [own, others] = [await shardsOf(port), new Set(organizations.keys())];
    for (const shard of own) others.delete(shard);
    let back = async () => {};
    const seen: unknown[] = [];
    if (how === "planned") await cluster.plan(port);
    else {
      back = await cluster.lose(port, how);
      // Before a replica can have been elected.
      if (how === "SIGKILL") seen.push(await ready());
      await traffic.more(1, [...others]);
      await cluster.replaced(port);
    }
    const replacedAt = performance.now();
    for (const found of seen) expect(found).toEqual({ degraded: expect.stringContaining(String(port)) });
    await traffic.more(10);
    await back();
    await traffic.more(5);
    await traffic.stop();
    const last = traffic.refusals.at(-1)?.at ?? 0;
    process.stderr.write(
      `${how}: ${traffic.refusals.length} refusals, the last ${Math.round(last - replacedAt)} ms after the new master\n`,
    );
    expect(traffic.refusals.filter(({ shard }) => others.has(shard))).toEqual([]);
    // 2 s by the rule; what follows is a test machine's own slowness.
    expect(last - replacedAt).toBeLessThan(10_000);
    await judge(traffic);
  },
  180_000,
);

test("whoever has a master's place is found before the commands to one that hangs fail", async () => {
  await cluster.settled();
  const stores = { redisUrl: cluster.url, postgresUrl: database.url };
  const patient = await Plane.open(stores, { running: false, commandTimeoutMs: 60_000 });
  const [port = 0] = await cluster.masters();
  const [shard = 0] = await shardsOf(port);
  const known = () => masterName(patient.redis, patient.holds.shards[shard]?.tag ?? "");
  expect(known()).toBe(`127.0.0.1:${port}`);
  const back = await cluster.lose(port, "SIGSTOP");
  const look = patient.upkeep.watch().catch(() => {});
  await cluster.replaced(port);
  await expect.poll(known, { timeout: 20_000 }).not.toBe(`127.0.0.1:${port}`);
  await back();
  await look;
  await patient.vanish();
}, 120_000);

test("a slot moves to another master and back under load: not a charge is lost or doubled", async () => {
  await cluster.settled();
  const traffic = load();
  // Each leaves a key that has to move.
  await traffic.more(40);
  const shard = 4;
  const from = await cluster.masterOf(shard);
  const to = (await cluster.masters()).find((port) => port !== from) ?? 0;
  const before = traffic.ofShard[shard] ?? 0;
  await cluster.move(shard, to, { slowly: () => sleep(30) });
  expect(await cluster.masterOf(shard)).toBe(to);
  await traffic.more(5);
  await cluster.move(shard, from);
  await traffic.more(5);
  await traffic.stop();
  expect(traffic.ofShard[shard]).toBeGreaterThan(before);
  expect(traffic.refusals.filter((refusal) => refusal.shard !== shard)).toEqual([]);
  await judge(traffic);
}, 180_000);

test("all masters are lost: every request is refused, and served again when they are back", async () => {
  await cluster.settled();
  const traffic = load();
  await traffic.more(3);
  const back = await cluster.loseAll();
  const refusedSince = performance.now();
  await expect
    .poll(
      () => new Set(traffic.refusals.filter(({ at }) => at > refusedSince).map(({ shard }) => shard)).size,
      { timeout: 20_000 },
    )
    .toBe(organizations.length);
  await expect.poll(ready, { timeout: 20_000 }).toContain("no master of the cluster answers");
  await back();
  await traffic.more(5);
  await traffic.stop();
  await expect.poll(ready, { timeout: 20_000 }).toBeNull();
  await judge(traffic);
}, 180_000);
