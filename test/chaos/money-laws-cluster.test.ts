/** The laws of money (test/integration/money-laws.test.ts) on a Redis Cluster, all of whose nodes are killed and flushed. */
import { afterAll, beforeAll } from "vitest";
import type { RunStores } from "../integration/money-run.ts";
import { startRedisCluster, type RedisCluster } from "../integration/redis-cluster.ts";
import { freshPostgres, type TestStore } from "../integration/stores.ts";
import { redisOf, testLaws } from "./money-laws.ts";

let cluster: RedisCluster;
let postgres: TestStore;
let stores: RunStores;
beforeAll(async () => {
  [cluster, postgres] = await Promise.all([startRedisCluster(), freshPostgres()]);
  stores = { redis: redisOf(cluster, () => cluster.loseAll()), postgres };
}, 120_000);
afterAll(async () => {
  await Promise.all([cluster?.[Symbol.asyncDispose](), postgres?.[Symbol.asyncDispose]()]);
});

testLaws(() => stores, 8);
