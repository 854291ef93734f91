/**
 * Random interleavings of everything that can happen to money, one after another and at once (as operations of one
 * script call), on real stores (design.md §5). After each, whatever the order was: every charge is made exactly once,
 * nothing stays held, and the audit is exact.
 */
import fc from "fast-check";
import { afterAll, beforeAll, describe, test } from "vitest";
import { calm, moments, wild, type Action } from "./money-actions.ts";
import { Run } from "./money-run.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";

let database: TestDatabase;
let redis: TestStore;
beforeAll(async () => {
  database = await freshDatabase();
  redis = await freshRedis();
});
afterAll(async () => {
  await redis[Symbol.asyncDispose]();
  await database.drop();
});

let runs = 0;
async function play(moments: readonly (readonly Action[])[], more?: (run: Run) => void): Promise<void> {
  const run = new Run({ redis, database }, String((runs += 1)));
  await run.begin();
  try {
    for (const actions of moments) await run.takeAtOnce(actions);
    await run.end();
    await run.judge();
    more?.(run);
  } finally {
    await run.close();
  }
}

const runsOf = (usual: number) => ({ numRuns: Number(process.env["MONEY_RUNS"] ?? usual) });

describe("any interleaving", () => {
  test("with crashes, flushes, restarts and late owners: charged exactly once, nothing held, the audit exact", async () => {
    await fc.assert(
      fc.asyncProperty(moments(wild, { minLength: 5, maxLength: 30 }), (them) => play(them)),
      runsOf(25),
    );
  }, 120_000);

  test("rule 1.8: without losses never more is spent than was there plus one request", async () => {
    await fc.assert(
      fc.asyncProperty(moments(calm, { minLength: 10, maxLength: 40 }), (them) =>
        play(them, (run) => run.judgeOverdraft()),
      ),
      runsOf(12),
    );
  }, 120_000);
});
