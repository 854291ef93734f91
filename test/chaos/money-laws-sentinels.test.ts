/**
 * The laws of money (test/integration/money-laws.test.ts) on a set of sentinels, whose master is killed and replaced, and behind a
 * PgBouncer in transaction mode.
 */
import { afterAll, beforeAll } from "vitest";
import type { RunStores } from "../integration/money-run.ts";
import { startPooler, type Pooler } from "../integration/pooler.ts";
import { startSentinels, type SentinelSet } from "../integration/sentinels.ts";
import { freshPostgres, type TestStore } from "../integration/stores.ts";
import { redisOf, testLaws } from "./money-laws.ts";

let set: SentinelSet;
let postgres: TestStore;
let pooler: Pooler;
let stores: RunStores;
beforeAll(async () => {
  [set, postgres] = await Promise.all([startSentinels(), freshPostgres()]);
  pooler = await startPooler(postgres.url);
  stores = {
    // Sentinels may still tell of the new master when it is known already, which breaks connections once more.
    slow: true,
    redis: redisOf(set, () => set.lose("SIGKILL")),
    postgres: { ...postgres, url: pooler.through(postgres.url) },
  };
}, 120_000);
afterAll(async () => {
  await Promise.all([set?.[Symbol.asyncDispose](), pooler?.[Symbol.asyncDispose]()]);
  await postgres?.[Symbol.asyncDispose]();
});

testLaws(() => stores, 4);
