/**
 * Data planes that are cut off from Postgres while others take what they had, and then come back to run it again beside
 * their first runs: each item has one line, one row and one count, of one run.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { TcpProxy } from "../fakes/tcp-proxy.ts";
import { BatchWorld, expectExact, LEASE_MS, over, startBatch } from "./batch-planes.ts";

let world: BatchWorld;
/** What stands between each of two data planes and Postgres. */
let proxies: readonly [TcpProxy, TcpProxy];
beforeAll(async () => {
  world = await BatchWorld.open();
  proxies = [await TcpProxy.open(world.postgres.url), await TcpProxy.open(world.postgres.url)];
});
afterAll(async () => {
  await world[Symbol.asyncDispose]();
  for (const proxy of proxies) await proxy.close();
});
beforeEach(() => world.answer());
afterEach(() => world.closePlanes());

const ITEMS = 120;
/** Few, so that what is taken from one does not all fit the other. */
const worker = {
  limits: { places: 12, placesOfOne: 12 },
  rhythm: { beatMs: 200, leaseMs: LEASE_MS, pollMs: 100 },
};

test.each([
  ["the connections break", async (proxy: TcpProxy) => proxy.cut()],
  ["nothing comes through, and no connection breaks", async (proxy: TcpProxy) => proxy.hole()],
  ["Postgres does all, and no answer comes", async (proxy: TcpProxy) => proxy.hole("answers")],
  [
    "no commit is answered, and then the connections break",
    async (proxy: TcpProxy) => {
      proxy.unanswered = /commit/i;
      await sleep(LEASE_MS / 2);
      proxy.unanswered = null;
      proxy.cut();
    },
  ],
  [
    "no answer comes, and then the connections break",
    async (proxy: TcpProxy) => {
      proxy.hole("answers");
      await sleep(LEASE_MS / 2);
      proxy.cut();
    },
  ],
])(
  "%s, in turn and then in both",
  async (_how, hurt) => {
    world.thinkMs = 100;
    world.spreadMs = 2 * LEASE_MS;
    // One of the first runs, which whoever is cut off first or second has: it goes on until all were cut off.
    const release = world.hold(0);
    const idle = await world.plane({ working: false });
    for (const proxy of proxies)
      await world.victim(undefined, { worker, stores: { postgresUrl: proxy.url } });
    const id = await startBatch(idle, ITEMS);
    await world.upstream.arrived(12, 20_000);
    const [one, other] = proxies;
    for (const some of [[one], [other], [one], [other], [one, other]]) {
      await Promise.all(some.map((proxy) => hurt(proxy)));
      // Long enough to be taken for dead, short enough that its runs still wait for the upstream.
      await sleep(1.5 * LEASE_MS);
      if (some.length === 1)
        await expect
          .poll(() => idle.count(sql.fragment`from batch_workers`), { timeout: 20_000, interval: 50 })
          .toBeLessThan(proxies.length);
      for (const proxy of some) proxy.reconnect();
      await sleep(LEASE_MS / 4);
    }
    expect(await over(idle, id)).toBeLessThan(ITEMS);
    const taken = world.upstream.requests.filter((one) => one.text.includes('"item 0"')).length - 1;
    expect(taken, "how often the held one was taken from whoever ran it").toBeGreaterThan(0);
    world.spreadMs = 0;
    release();
    await expectExact(idle, id, ITEMS);
    // Those of late runs as well.
    await expect
      .poll(async () => (await reconcileLedger(idle.pool, idle.redis)).holds, { timeout: 20_000 })
      .toBe(0);
    // Else nothing was taken from anybody.
    expect(world.upstream.requests.length).toBeGreaterThan(ITEMS + ITEMS / 10);
  },
  120_000,
);
