/**
 * Failovers of a set of sentinels under load (test/chaos/failovers.ts): a master and two replicas, three sentinels, the ways
 * between them cut as well, and a PgBouncer in transaction mode before Postgres.
 */
import { afterAll, beforeAll, test } from "vitest";
import { Network } from "../integration/partitions.ts";
import { startPooler, type Pooler } from "../integration/pooler.ts";
import { startSentinels, type SentinelSet } from "../integration/sentinels.ts";
import { freshPostgres, type TestStore } from "../integration/stores.ts";
import { FAILOVERS_LIMIT_MS, expectExactFailovers, type Kind, type Replaced } from "./failovers.ts";

const network = new Network();
let set: SentinelSet;
let postgres: TestStore;
let pooler: Pooler;
beforeAll(async () => {
  [set, postgres] = await Promise.all([startSentinels({ network, replicas: 2 }), freshPostgres()]);
  pooler = await startPooler(postgres.url);
}, 120_000);
afterAll(async () => {
  await Promise.all([set?.[Symbol.asyncDispose](), pooler?.[Symbol.asyncDispose]()]);
  await postgres?.[Symbol.asyncDispose]();
  await network[Symbol.asyncDispose]();
});

const organizations = ["org_acme", "org_other"];

async function replace(kind: Kind): Promise<Replaced> {
  const concerned = new Set(organizations);
  const settled = () => set.settled();
  if (kind === "planned") {
    await set.plan();
    return { concerned, back: settled };
  }
  const back =
    kind === "SIGKILL" || kind === "SIGSTOP"
      ? await set.lose(kind)
      : await set.part(kind === "split" ? "peers" : "everybody");
  return { concerned, back: () => back().then(settled) };
}

test(
  "each complete answer is charged once, no line of a batch is lost or doubled, and the audit is exact after each",
  async () => {
    await expectExactFailovers({
      name: "a master, two replicas and three sentinels, behind a PgBouncer",
      stores: { redisUrl: set.url, postgresUrl: pooler.through(postgres.url) },
      organizations,
      settled: () => set.settled(),
      replace,
    });
  },
  FAILOVERS_LIMIT_MS,
);
