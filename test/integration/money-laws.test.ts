/**
 * Random interleavings of everything that can happen to money, one after another and at once (as operations of one
 * script call), on real stores (design.md §5). After each, whatever the order was: every charge is made exactly once,
 * nothing stays held, and reconcile is exact.
 */
import fc from "fast-check";
import { afterAll, beforeAll, describe, test } from "vitest";
import { calm, faulty, moments, wild, type Action } from "./money-actions.ts";
import { LAWS_LIMIT_MS, play as playOn, runsOf } from "./money-play.ts";
import type { Run } from "./money-run.ts";
import { freshPostgres, freshRedis, type TestStore } from "./stores.ts";

let postgres: TestStore;
let redis: TestStore;
beforeAll(async () => {
  [postgres, redis] = await Promise.all([freshPostgres(), freshRedis()]);
});
afterAll(async () => {
  await Promise.all([redis[Symbol.asyncDispose](), postgres[Symbol.asyncDispose]()]);
});

const play = (moments: readonly (readonly Action[])[], more?: (run: Run) => void) =>
  playOn({ redis, postgres }, moments, more);

describe("any interleaving", () => {
  test(
    "with crashes, flushes, restarts and late owners: charged exactly once, nothing held, reconcile exact",
    async () => {
      await fc.assert(
        fc.asyncProperty(moments(wild, { minLength: 5, maxLength: 30 }), (them) => play(them)),
        runsOf(25),
      );
    },
    LAWS_LIMIT_MS,
  );

  test(
    "with data planes cut off, stores that come back older and clocks that step: the same, and what was lost is told",
    async () => {
      await fc.assert(
        fc.asyncProperty(moments(faulty, { minLength: 5, maxLength: 20 }), (them) => play(them)),
        runsOf(8),
      );
    },
    LAWS_LIMIT_MS,
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
    LAWS_LIMIT_MS,
  );
});
