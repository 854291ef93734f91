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

/** MONEY_RUNS=200 for a longer run, MONEY_SEED for one that can be repeated: a failure prints its seed and steps. */
const seed = process.env["MONEY_SEED"];
export const runsOf = (usual: number) => ({
  numRuns: Number(process.env["MONEY_RUNS"] ?? runs(usual)),
  endOnFailure: process.env["MONEY_SHRINK"] === "0",
  ...(seed === undefined ? {} : { seed: Number(seed) }),
});
export const LAWS_LIMIT_MS = process.env["MONEY_RUNS"] === undefined ? 300_000 : 7_200_000;
