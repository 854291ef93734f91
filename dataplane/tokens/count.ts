/**
 * Counts the tokens of a Messages request here, where no upstream can or may (rule 2.18). The vocabulary is OpenAI's
 * newest public one: right for its models and within some per cent for the others, the same for all. Counting is
 * free, so it must cost little whatever is counted (rule 7.5): at most 256 Ki characters of a request are tokenized,
 * and that in a thread of its own, which organizations take in turn. The texts of a large body are gathered where it
 * is, in another thread too (inference/large/).
 */
import { ApiError } from "../lib/api-error.ts";
import { Counter } from "./counter.ts";
import type { SampledTexts } from "./sample.ts";

const counter = new Counter();

/**
 * Input tokens of a Messages request by its texts; beyond 256 Ki characters an estimate from samples.
 * @param owner whose count it is: one organization's counts do not hold up another's.
 * @throws the reason of `signal` when it aborts; ApiError rate_limited when too many counts wait.
 */
export async function countSample(
  { text, lengths, factor, fixed }: SampledTexts,
  owner: string,
  signal: AbortSignal,
): Promise<number> {
  if (text === "") return fixed;
  const counted = await counter.count({ text, lengths }, owner, signal);
  if (counted === null) {
    throw new ApiError("rate_limited", "Too many token counts wait already; try again in a moment.", {
      retryAfterSeconds: 1,
    });
  }
  return fixed + Math.ceil(counted * factor);
}
