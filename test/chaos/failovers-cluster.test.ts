/** Failovers of a Redis Cluster under load (test/chaos/failovers.ts): three masters with a replica each, the ways between them cut as well. */
import { afterAll, beforeAll, test } from "vitest";
import { SHARDS, shardOf } from "../../dataplane/billing/holds/shard.ts";
import { Network } from "../integration/partitions.ts";
import { startRedisCluster, type RedisCluster } from "../integration/redis-cluster.ts";
import { freshPostgres, type TestStore } from "../integration/stores.ts";
import { FAILOVERS_LIMIT_MS, expectExactFailovers, type Kind, type Replaced } from "./failovers.ts";

const network = new Network();
let cluster: RedisCluster;
let postgres: TestStore;
beforeAll(async () => {
  [cluster, postgres] = await Promise.all([startRedisCluster({ network }), freshPostgres()]);
}, 120_000);
afterAll(async () => {
  await Promise.all([cluster?.[Symbol.asyncDispose](), postgres?.[Symbol.asyncDispose]()]);
  await network[Symbol.asyncDispose]();
});

/** One in each quarter of the slots, so that each of three masters has one or two. */
const organizations = [0, 1, 2, 3].map((quarter) => {
  for (let n = 0; ; n += 1) if (shardOf(`org_${n}`) === (quarter * SHARDS) / 4) return `org_${n}`;
});

async function replace(kind: Kind, chance: number): Promise<Replaced> {
  const masters = (await cluster.masters()).toSorted((one, other) => one - other);
  const port = masters[Math.floor(chance * masters.length)] ?? 0;
  const concerned = new Set<string>();
  for (const organization of organizations)
    if ((await cluster.masterOf(shardOf(organization))) === port) concerned.add(organization);
  if (kind === "planned") {
    await cluster.plan(port);
    return { concerned, back: () => cluster.settled() };
  }
  const back =
    kind === "SIGKILL" || kind === "SIGSTOP"
      ? await cluster.lose(port, kind)
      : await cluster.part(port, kind === "split" ? "peers" : "everybody");
  await cluster.replaced(port);
  return { concerned, back };
}

test(
  "each complete answer is charged once, no line of a batch is lost or doubled, and the audit is exact after each",
  async () => {
    await expectExactFailovers({
      name: "a cluster of three masters and three replicas",
      stores: { redisUrl: cluster.url, postgresUrl: postgres.url },
      organizations,
      settled: () => cluster.settled(),
      replace,
    });
  },
  FAILOVERS_LIMIT_MS,
);
