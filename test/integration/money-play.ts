/** How the laws of money are played: an interleaving after the other on the same stores. */
import fc from "fast-check";
import { runs } from "../fakes/runs.ts";
import type { Action } from "./money-actions.ts";
import { Run, type RunStores } from "./money-run.ts";

let played = 0;

/** Does what these moments say, each one's actions at once, and judges what is in the books then. */
export async function play(
  stores: RunStores,
  moments: readonly (readonly Action[])[],
  more?: (run: Run) => void,
): Promise<void> {
  const run = new Run(stores, String((played += 1)), moments.flat());
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

/** An interleaving that takes longer counts as failed, so that one that hangs is told with its steps too. */
const PLAY_LIMIT_MS = 200_000;
const seed = process.env["MONEY_SEED"];
/**
 * A failure prints its seed and its steps. MONEY_RUNS=200: a longer run. MONEY_SEED=1: the same interleavings again.
 * MONEY_SHRINK=1: after a failure, look for fewer steps that fail too. That is not done otherwise, as it takes longer than a
 * test may, whose time-out would then be all that is told.
 */
export const runsOf = (usual: number) => ({
  numRuns: Number(process.env["MONEY_RUNS"] ?? runs(usual)),
  endOnFailure: process.env["MONEY_SHRINK"] !== "1",
  plugins: [fc.timeout(PLAY_LIMIT_MS)],
  ...(seed === undefined ? {} : { seed: Number(seed) }),
});
export const LAWS_LIMIT_MS =
  process.env["MONEY_RUNS"] === undefined && process.env["MONEY_SHRINK"] === undefined ? 300_000 : 7_200_000;
