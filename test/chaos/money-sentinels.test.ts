/** The master of a set of sentinels changes under load (rules 12.1, 12.2): planned, killed, and stopped without a word. */
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { duplicateToListen } from "../../dataplane/store/redis-servers.ts";
import { openRedis, redisReady } from "../../dataplane/store/redis.ts";
import { Plane, makeOrganization, request, usage } from "../integration/money-world.ts";
import { startSentinels, type SentinelSet } from "../integration/sentinels.ts";
import { freshDatabase, type TestDatabase } from "../integration/stores.ts";

const COST = 3;
let set: SentinelSet;
let database: TestDatabase;
let planes: readonly Plane[];

beforeAll(async () => {
  [set, database] = await Promise.all([startSentinels(), freshDatabase()]);
  const stores = { redisUrl: set.url, postgresUrl: database.url };
  const rhythm = { heartbeatMs: 500, sweepMs: 500, accountsMs: 500 };
  planes = await Promise.all([Plane.open(stores, { rhythm }), Plane.open(stores, { rhythm })]);
  for (const organization of organizations)
    await makeOrganization(planes[0]!.pool, organization, 10_000_000n);
}, 120_000);
afterAll(async () => {
  await Promise.all((planes ?? []).map((plane) => plane.close()));
  await set?.[Symbol.asyncDispose]();
  await database?.drop();
});

const organizations = Array.from({ length: 8 }, (_, n) => `org_${n}`);

/** Requests one after another in each of so many lines, until it is stopped. */
function load() {
  const charged = new Set<string>();
  const faults: unknown[] = [];
  let refused = 0;
  let lastRefusal = 0;
  const stopped = new AbortController();
  const line = async (n: number) => {
    for (let turn = 0; !stopped.signal.aborted; turn += 1) {
      const plane = planes[turn % planes.length]!;
      const asked = request(organizations[(n + turn) % organizations.length]!);
      try {
        const bill = await plane.holds.open(asked, 100n);
        await sleep(20);
        await bill.settle(usage(COST));
        charged.add(asked.id);
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== "unavailable") faults.push(error);
        refused += 1;
        lastRefusal = performance.now();
        await sleep(20);
      }
    }
  };
  const lines = Array.from({ length: 16 }, (_, n) => line(n));
  return {
    charged,
    faults,
    refusals: () => ({ refused, lastRefusal }),
    stop: async () => {
      stopped.abort();
      await Promise.all(lines);
    },
  };
}

const costs = async () => {
  const rows = await planes[0]!.pool.any(
    sql.type(z.object({ id: z.string(), cost: z.bigint() }))`select id, cost_micros as cost from usage`,
  );
  return new Map(rows.map(({ id, cost }) => [id, cost]));
};

test.each(["planned", "SIGKILL", "SIGSTOP"] as const)(
  "another master (%s): refused only while there is none, each acknowledged answer charged once",
  async (how) => {
    const traffic = load();
    await expect.poll(() => traffic.charged.size, { timeout: 20_000 }).toBeGreaterThan(50);
    let back = async () => {};
    if (how === "planned") await set.plan();
    else back = await set.lose(how);
    const replacedAt = performance.now();
    const before = traffic.charged.size;
    await expect.poll(() => traffic.charged.size, { timeout: 30_000 }).toBeGreaterThan(before + 50);
    await back();
    await sleep(1_000);
    await traffic.stop();
    expect(traffic.faults).toEqual([]);
    // Requests are served again within 2 s of the new master; what follows is a test machine's own slowness.
    expect(traffic.refusals().lastRefusal - replacedAt).toBeLessThan(10_000);
    const wronglyCharged = async () => {
      const known = await costs();
      return [...traffic.charged].filter((id) => known.get(id) !== BigInt(COST));
    };
    await expect.poll(wronglyCharged, { timeout: 30_000 }).toEqual([]);
    await expect
      .poll(async () => (await reconcileLedger(planes[0]!.pool, planes[0]!.redis)).broken, {
        timeout: 30_000,
      })
      .toEqual([]);
  },
  180_000,
);

interface Detecting {
  readonly stream: Socket | undefined;
  readonly failoverDetector: { readonly sentinels: readonly { readonly client: Redis }[] } | null;
}

/** What a client's sentinels may tell, whenever a test wants it. */
async function clientAndSentinels(client: Redis) {
  client.on("error", () => {});
  await redisReady(client, 20_000);
  const { connector } = client as unknown as { readonly connector: Detecting };
  await expect.poll(() => connector.failoverDetector).not.toBeNull();
  const tell = (port: number) => {
    const [sentinel] = connector.failoverDetector?.sentinels ?? [];
    sentinel?.client.emit("message", "+switch-master", `main 127.0.0.1 1 127.0.0.1 ${port}`);
  };
  return { connector, tell };
}

test("a failover that is told while a client asks who is master does not end it, nor a copy of it", async () => {
  const redis = openRedis(set.url, { onError: () => {} });
  await using disposal = new AsyncDisposableStack();
  for (const client of [redis, duplicateToListen(redis)] as Redis[]) {
    disposal.defer(() => client.disconnect());
    const { connector, tell } = await clientAndSentinels(client);
    const first = connector.stream;
    const master = await set.master();
    // The master that it will find, and another one, which it asks for once more.
    for (const [told, reconnects] of [
      [master, 1],
      [1, 2],
    ] as const) {
      let connected = 0;
      const count = () => (connected += 1);
      client.on("connect", count);
      client.once("connecting", () => tell(told));
      client.disconnect(true);
      await expect.poll(() => [connected, client.status], { timeout: 20_000 }).toEqual([reconnects, "ready"]);
      client.off("connect", count);
      expect(await client.ping()).toBe("PONG");
    }
    expect(connector.stream).not.toBe(first);
  }
}, 60_000);

test("a client stays with the master that is told, and leaves another", async () => {
  const client = openRedis(set.url, { onError: () => {} }) as Redis;
  await using disposal = new AsyncDisposableStack();
  disposal.defer(() => client.disconnect());
  const { connector, tell } = await clientAndSentinels(client);
  const { stream } = connector;
  tell(await set.master());
  expect(await client.ping()).toBe("PONG");
  await sleep(300);
  expect(connector.stream).toBe(stream);
  tell(1);
  await expect.poll(() => connector.stream !== stream && client.status, { timeout: 20_000 }).toBe("ready");
  expect(await client.ping()).toBe("PONG");
}, 60_000);
