/** Whole data planes on a Redis Cluster: what `/readyz` and clients see while masters are lost (rules 12.1, 12.2). */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { shardOf } from "../../dataplane/billing/holds/shard.ts";
import type { DataPlane } from "../fakes/data-plane.ts";
import { startRedisCluster, type RedisCluster } from "../integration/redis-cluster.ts";
import { freshPostgres, type TestStore } from "../integration/stores.ts";
import { World } from "./money-planes.ts";

let cluster: RedisCluster;
let postgres: TestStore;
let world: World;
let planes: readonly DataPlane[];
beforeAll(async () => {
  [cluster, postgres] = await Promise.all([startRedisCluster(), freshPostgres()]);
  world = await World.open({ redisUrl: cluster.url, postgresUrl: postgres.url });
  planes = await Promise.all([world.start(), world.start()]);
}, 120_000);
afterAll(async () => {
  await world?.close();
  await Promise.all([cluster?.[Symbol.asyncDispose](), postgres?.[Symbol.asyncDispose]()]);
});

const served = async () =>
  (await Promise.all(planes.map((plane) => world.ask(plane)))).every(({ complete }) => complete);
const readiness = async () => await Promise.all(planes.map((plane) => plane.readiness()));
/** Of the organization that asks. */
const ownMaster = () => cluster.masterOf(shardOf("org_acme"));
const named = (port: number) => ({
  ok: true,
  text: expect.stringMatching(new RegExp(`ok redis: of 3 masters 127\\.0\\.0\\.1:${port} does not answer`)),
});

test.each(["SIGKILL", "SIGSTOP"] as const)(
  "another organization's master is lost (%s): it is named, everybody stays ready and is served",
  async (how) => {
    await expect.poll(served, { timeout: 30_000 }).toBe(true);
    const own = await ownMaster();
    const lost = (await cluster.masters()).find((port) => port !== own) ?? 0;
    const back = await cluster.lose(lost, how);
    await expect.poll(readiness, { timeout: 10_000, interval: 20 }).toEqual([named(lost), named(lost)]);
    expect(await served()).toBe(true);
    await cluster.replaced(lost);
    expect(await served()).toBe(true);
    await back();
    const well = { ok: true, text: expect.stringContaining("ok redis\n") };
    await expect.poll(readiness, { timeout: 20_000 }).toEqual([well, well]);
  },
  120_000,
);

test("its own master is lost under load: refused until there is another, and served then", async () => {
  const stop = new AbortController();
  const load = world.load(() => planes, 6, stop.signal);
  const own = await ownMaster();
  const back = await cluster.lose(own, "SIGKILL");
  await expect.poll(served).toBe(false);
  expect((await readiness()).map((answer) => answer?.ok)).toEqual([true, true]);
  await cluster.replaced(own);
  await expect.poll(served, { timeout: 10_000 }).toBe(true);
  await back();
  stop.abort();
  await load;
}, 120_000);

test("two masters are lost at once: both are named, and all is as before when they are back", async () => {
  const own = await ownMaster();
  const lost = [own, (await cluster.masters()).find((port) => port !== own) ?? 0];
  // Nobody is elected without a majority of the masters, and the third one refuses everything too.
  const back = await cluster.loseAll(lost);
  const names = lost.map((port) => `127\\.0\\.0\\.1:${port}`);
  const text = new RegExp(
    `ok redis: of 3 masters (${names.join(", ")}|${names.toReversed().join(", ")}) do not answer`,
  );
  const both = { ok: true, text: expect.stringMatching(text) };
  await expect.poll(readiness, { timeout: 10_000, interval: 20 }).toEqual([both, both]);
  expect(await served()).toBe(false);
  await back();
  await expect.poll(served, { timeout: 20_000 }).toBe(true);
  const well = { ok: true, text: expect.stringContaining("ok redis\n") };
  await expect.poll(readiness, { timeout: 20_000 }).toEqual([well, well]);
}, 120_000);

test("a data plane that starts while masters are lost is ready, and serves, once none is", async () => {
  const own = await ownMaster();
  // Two, so that no other is elected in their place.
  const lost = [own, (await cluster.masters()).find((port) => port !== own) ?? 0];
  const back = await cluster.loseAll(lost);
  const late = await world.spawn();
  const isReady = async () => (await late.readiness())?.ok === true;
  for (let look = 0; look < 20; look += 1) {
    expect([late.alive, await isReady()]).toEqual([true, false]);
    await sleep(500);
  }
  await back();
  await expect.poll(isReady, { timeout: 30_000 }).toBe(true);
  await expect.poll(async () => (await world.ask(late)).complete, { timeout: 20_000 }).toBe(true);
  await late.stop("SIGTERM");
  await expect.poll(served, { timeout: 20_000 }).toBe(true);
}, 120_000);

test("the slot of its shard moves to another master and back under load: refused at most meanwhile", async () => {
  const stop = new AbortController();
  const load = world.load(() => planes, 6, stop.signal);
  const shard = shardOf("org_acme");
  const from = await cluster.masterOf(shard);
  const to = (await cluster.masters()).find((port) => port !== from) ?? 0;
  await cluster.move(shard, to, { slowly: () => sleep(20) });
  expect(await cluster.masterOf(shard)).toBe(to);
  await expect.poll(served, { timeout: 10_000 }).toBe(true);
  await cluster.move(shard, from);
  await expect.poll(served, { timeout: 10_000 }).toBe(true);
  stop.abort();
  await load;
}, 120_000);

test("all masters are lost: not ready, and ready again when they are back", async () => {
  const back = await cluster.loseAll();
  const fault = { ok: false, text: expect.stringContaining("FAIL redis: no master of the cluster answers") };
  await expect.poll(readiness, { timeout: 10_000 }).toEqual([fault, fault]);
  await back();
  const well = { ok: true, text: expect.stringContaining("ok redis\n") };
  await expect.poll(readiness, { timeout: 30_000 }).toEqual([well, well]);
  await expect.poll(served, { timeout: 20_000 }).toBe(true);
}, 120_000);

test("and every complete answer was charged exactly once, for what it said", async () => {
  await expect(world.judge()).resolves.toBeUndefined();
}, 120_000);
