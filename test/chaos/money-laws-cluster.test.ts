/** The laws of money (test/integration/money-laws.test.ts) on a Redis Cluster, all of whose nodes are killed and flushed. */
import fc from "fast-check";
import { afterAll, beforeAll, test } from "vitest";
import { calm, moments, wild } from "../integration/money-actions.ts";
import { LAWS_LIMIT_MS, play, runsOf } from "../integration/money-play.ts";
import type { RunStores } from "../integration/money-run.ts";
import { startRedisCluster, type RedisCluster } from "../integration/redis-cluster.ts";
import { freshPostgres, type TestStore } from "../integration/stores.ts";

let cluster: RedisCluster;
let postgres: TestStore;
let stores: RunStores;
beforeAll(async () => {
  [cluster, postgres] = await Promise.all([startRedisCluster(), freshPostgres()]);
  let back = async () => {};
  const noCopy = () => Promise.reject(new Error("a cluster is not rolled back"));
  const redis: RunStores["redis"] = {
    url: cluster.url,
    kill: async () => {
      back = await cluster.loseAll();
    },
    start: () => back(),
    save: noCopy,
    rollBack: noCopy,
  };
  stores = { redis, postgres };
}, 120_000);
afterAll(async () => {
  await Promise.all([cluster?.[Symbol.asyncDispose](), postgres?.[Symbol.asyncDispose]()]);
});

test(
  "with crashes, flushes, restarts and late owners: charged exactly once, nothing held, reconcile exact",
  async () => {
    const some = moments(wild, { minLength: 5, maxLength: 30 });
    await fc.assert(
      fc.asyncProperty(some, (them) => play(stores, them)),
      runsOf(8),
    );
  },
  LAWS_LIMIT_MS,
);

test(
  "rule 1.8: without losses never more is spent than was there plus one request",
  async () => {
    const some = moments(calm, { minLength: 10, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(some, (them) => play(stores, them, (run) => run.judgeOverdraft())),
      runsOf(8),
    );
  },
  LAWS_LIMIT_MS,
);
