/**
 * Counts the tokens of a Messages request here, where no upstream can or may (rule 2.18). The vocabulary is OpenAI's
 * newest public one: right for its models and within some per cent for the others, the same for all. Counting is
 * free, so it must cost little whatever is counted (rule 7.5): at most 256 Ki characters of a request are tokenized,
 * and that in a thread of its own, which organizations take in turn. The texts of a large body are gathered where it
 * is, in another thread too (inference/large/).
 */
import { ApiError } from "../lib/api-error.ts";
import { WorkerPool, WorkNotDone } from "../lib/worker-pool.ts";
import type { CountingJob } from "./counting-thread.ts";
import type { SampledTexts } from "./sample.ts";

/** The thread has what others leave: where cores are scarce, loading the vocabulary takes it many times its second. */
const JOB_MS = 120_000;

const counting = new WorkerPool(new URL("./counting-thread.ts", import.meta.url), null, {
  workers: 1,
  // The vocabulary is outside of it; what it is made of takes a tenth.
  heapMiB: 512,
  retireMiB: 384,
  jobMs: JOB_MS,
  // A count takes a tenth of a second, and loading the vocabulary anew more.
  graceMs: JOB_MS,
  waitMs: 30_000,
  // Somebody who asks for more at once than the budget of free requests lets through is turned away.
  waitingOfOne: 1_000,
  waiting: 10_000,
});

/**
 * Input tokens of a Messages request by its texts; beyond 256 Ki characters an estimate from samples.
 * @param owner whose count it is: one organization's counts do not hold up another's.
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
  throw new ApiError("rate_limited", "Too many token counts wait already; try again in a moment.", {
    retryAfterSeconds: 1,
    cause: error,
  });
}
