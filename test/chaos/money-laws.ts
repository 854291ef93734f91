/** The laws of money (test/integration/money-laws.test.ts) as tests on stores of another form. */
import fc from "fast-check";
import { test } from "vitest";
import { calm, moments, wild } from "../integration/money-actions.ts";
import { LAWS_LIMIT_MS, play, runsOf } from "../integration/money-play.ts";
import type { RunStores } from "../integration/money-run.ts";

/** `runs`: of each law, where nothing else is asked for. Copies are not made: several servers have no one moment. */
export function testLaws(stores: () => RunStores, runs: number): void {
  test(
    "with crashes, flushes, restarts and late owners: charged exactly once, nothing held, reconcile exact",
    async () => {
      const some = moments(wild, { minLength: 5, maxLength: 30 });
      await fc.assert(
        fc.asyncProperty(some, (them) => play(stores(), them)),
        runsOf(runs),
      );
    },
    LAWS_LIMIT_MS,
  );

  test(
    "rule 1.8: without losses never more is spent than was there plus one request",
    async () => {
      const some = moments(calm, { minLength: 10, maxLength: 40 });
      await fc.assert(
        fc.asyncProperty(some, (them) => play(stores(), them, (run) => run.judgeOverdraft())),
        runsOf(runs),
      );
    },
    LAWS_LIMIT_MS,
  );
}

const noCopy = () => Promise.reject(new Error("several servers are not copied as of one moment"));

/** Of servers that are lost by `lose`, which returns how they come back. */
export function redisOf(
  { url, settled }: { readonly url: string; readonly settled: () => Promise<void> },
  lose: () => Promise<() => Promise<void>>,
): RunStores["redis"] {
  let back = async () => {};
  return {
    url,
    settled,
    kill: async () => {
      back = await lose();
    },
    start: () => back(),
    save: noCopy,
    rollBack: noCopy,
  };
}
