/**
 * Counts the tokens of a Messages request here, where no upstream can or may (rule 2.18). The vocabulary is OpenAI's
 * newest public one: right for its models and within some per cent for the others, the same for all. Counting is
 * free, so it must cost little whatever is counted (rule 7.5): the request is walked in slices that organizations
 * take in turn, at most 256 Ki characters of it are tokenized, and that in a thread of its own.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { ApiError } from "../lib/api-error.ts";
import { FairPlaces } from "../lib/fair-places.ts";
import { Slices } from "../lib/slices.ts";
import { Counter, COUNTS_WAITING } from "./counter.ts";
import { requestTexts, type CountableRequest } from "./request-texts.ts";
import { TextSample, type SampledTexts } from "./sample.ts";

/** The walks' part of a turn of the event loop, for all counts together. */
const SLICE_MS = 3;
/** Reading the clock costs more than a step. */
const STEPS_BETWEEN_LOOKS = 32;

const counter = new Counter();
const slices = new FairPlaces({ places: 1, ...COUNTS_WAITING });

/**
 * Input tokens of a Messages request; beyond 256 Ki characters of text an estimate from samples. No form of the
 * request can make it fail.
 * @param owner whose count it is: one organization's counts do not hold up another's.
 * @throws the reason of `signal` when it aborts; ApiError rate_limited when too many counts wait.
 */
export async function countTokens(
  request: CountableRequest,
  owner: string,
  signal: AbortSignal,
): Promise<number> {
  return countSample(await walk(request, owner, signal), owner, signal);
}

/** The same of a request that was walked already. */
export async function countSample(
  { text, lengths, factor, fixed }: SampledTexts,
  owner: string,
  signal: AbortSignal,
): Promise<number> {
  if (text === "") return fixed;
  const counted = (await counter.count({ text, lengths }, owner, signal)) ?? tooMany();
  return fixed + Math.ceil(counted * factor);
}

async function walk(request: CountableRequest, owner: string, signal: AbortSignal): Promise<SampledTexts> {
  const texts = requestTexts(request);
  const sample = new TextSample();
  let fixed = 0;
  for (;;) {
    const release = (await slices.take(owner, signal)) ?? tooMany();
    try {
      const slice = new Slices(SLICE_MS);
      let steps = 0;
      for (;;) {
        const { done, value } = texts.next();
        if (done === true) return sample.sampled(fixed);
        if (typeof value === "number") fixed += value;
        else sample.add(value);
        steps += 1;
        if (steps % STEPS_BETWEEN_LOOKS === 0 && slice.usedUp) break;
      }
      await nextTurn();
    } finally {
      release();
    }
  }
}

function tooMany(): never {
  throw new ApiError("rate_limited", "Too many token counts wait already; try again in a moment.", {
    retryAfterSeconds: 1,
  });
}
