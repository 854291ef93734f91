/**
 * Counts the tokens of a Messages request here, where no upstream can or may (rule 2.18). The vocabulary is OpenAI's
 * newest public one for all models: exact for OpenAI's and within some per cent for the others. Counting is free, so it
 * must cost little whatever is counted (rule 7.5): at most 256 Ki characters of a request are tokenized, in a thread of
 * its own, which organizations use in turn. The texts of a large body are gathered in the thread that holds the body
 * (inference/large/).
 */
import { ApiError } from "../lib/api-error.ts";
import { WorkerPool, WorkNotDone } from "../lib/worker-pool.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { CountingJob } from "./counting-thread.ts";
import type { SampledTexts } from "./sample.ts";

/** Time-out of a count. The thread has low priority: where cores are scarce, loading the vocabulary takes many times its second. */
const JOB_MS = 120_000;

const counting = new WorkerPool(new URL("./counting-thread.ts", import.meta.url), null, {
  workers: 1,
  // The vocabulary is outside of this heap; the data that it is built from takes a tenth of it.
  heapMiB: 512,
  retireMiB: 384,
  jobMs: JOB_MS,
  // A count takes a tenth of a second; loading the vocabulary again takes longer.
  graceMs: JOB_MS,
  waitMs: 30_000,
  // Counts of one organization beyond what the budget of free requests lets through at once are refused.
  waitingOfOne: 1_000,
  waiting: 10_000,
});

/**
 * Counts the input tokens of a Messages request by its texts; beyond 256 Ki characters estimates them from samples.
 * @param owner the organization: its counts do not delay another's.
 * @throws the reason of `signal` when it aborts; ApiError rate_limited when too many counts wait, or this one did for too long.
 */
export async function countSample(
  { text, lengths, factor, fixed }: SampledTexts,
  owner: string,
  signal: AbortSignal,
): Promise<number> {
  if (text === "") return fixed;
  const job: CountingJob = { text, lengths };
  const counted = await counting
    .run(owner, () => ({ message: job, transfer: [] }), signal)
    .catch((error: unknown) => notCounted(error, signal));
  signal.throwIfAborted();
  return fixed + Math.ceil((counted as number) * factor);
}

function notCounted(error: unknown, signal: AbortSignal): never {
  signal.throwIfAborted();
  if (!(error instanceof WorkNotDone) || error.reason === "broken") throw error;
  metrics.refused.inc({ reason: "counting" });
  throw new ApiError("rate_limited", "Too many token counts wait already; try again in a moment.", {
    retryAfterSeconds: 1,
    cause: error,
  });
}
