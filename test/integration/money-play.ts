/** How the laws of money are played: an interleaving after the other on the same stores. */
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

/** One interleaving that takes longer hangs, and is told as the failure that it is, with its steps. */
const PLAY_LIMIT_MS = 200_000;
const seed = process.env["MONEY_SEED"];
/**
 * MONEY_RUNS=200 for a longer run, MONEY_SEED for one that can be repeated: a failure prints its seed and steps. Looking for
 * fewer steps that fail too takes longer than a test may, and would end as a time-out that tells nothing: MONEY_SHRINK=1 does.
 */
export const runsOf = (usual: number) => ({
  numRuns: Number(process.env["MONEY_RUNS"] ?? runs(usual)),
  endOnFailure: process.env["MONEY_SHRINK"] !== "1",
  timeout: PLAY_LIMIT_MS,
  ...(seed === undefined ? {} : { seed: Number(seed) }),
});
export const LAWS_LIMIT_MS =
  process.env["MONEY_RUNS"] === undefined && process.env["MONEY_SHRINK"] === undefined ? 300_000 : 7_200_000;
