/**
 * Random interleavings of everything that can happen to money, one after another and at once (as operations of one
 * script call), on real stores (design.md §5). After each, whatever the order was: every charge is made exactly once,
 * nothing stays held, and reconcile is exact.
 */
import fc from "fast-check";
import { afterAll, beforeAll, describe, test } from "vitest";
import { calm, faulty, moments, wild, type Action } from "./money-actions.ts";
import { Run } from "./money-run.ts";
import { freshPostgres, freshRedis, type TestStore } from "./stores.ts";

let postgres: TestStore;
let redis: TestStore;
beforeAll(async () => {
  [postgres, redis] = await Promise.all([freshPostgres(), freshRedis()]);
});
afterAll(async () => {
  await Promise.all([redis[Symbol.asyncDispose](), postgres[Symbol.asyncDispose]()]);
});

let runs = 0;
async function play(moments: readonly (readonly Action[])[], more?: (run: Run) => void): Promise<void> {
  const run = new Run({ redis, postgres }, String((runs += 1)), moments.flat());
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

/** MONEY_RUNS=200 for a longer run, MONEY_SEED for one that can be repeated: a failure prints its seed and steps. */
const seed = process.env["MONEY_SEED"];
const runsOf = (usual: number) => ({
  numRuns: Number(process.env["MONEY_RUNS"] ?? usual),
  endOnFailure: process.env["MONEY_SHRINK"] === "0",
  ...(seed === undefined ? {} : { seed: Number(seed) }),
});
const LIMIT_MS = process.env["MONEY_RUNS"] === undefined ? 300_000 : 7_200_000;

describe("any interleaving", () => {
  test(
    "with crashes, flushes, restarts and late owners: charged exactly once, nothing held, reconcile exact",
    async () => {
      await fc.assert(
        fc.asyncProperty(moments(wild, { minLength: 5, maxLength: 30 }), (them) => play(them)),
        runsOf(25),
      );
    },
    LIMIT_MS,
  );

  test(
    "with data planes cut off, stores that come back older and clocks that step: the same, and what was lost is told",
    async () => {
      await fc.assert(
        fc.asyncProperty(moments(faulty, { minLength: 5, maxLength: 20 }), (them) => play(them)),
        runsOf(8),
      );
    },
    LIMIT_MS,
  );

  test(
    "rule 1.8: without losses never more is spent than was there plus one request",
    async () => {
      await fc.assert(
        fc.asyncProperty(moments(calm, { minLength: 10, maxLength: 40 }), (them) =>
          play(them, (run) => run.judgeOverdraft()),
        ),
        runsOf(12),
      );
    },
    LIMIT_MS,
  );
});
