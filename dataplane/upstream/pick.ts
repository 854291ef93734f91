/** Picks the next upstream and the wait before it is called (design.md §4.6). Pure. */
import { rank, type Weighted } from "./affinity.ts";

export interface Prioritized extends Weighted {
  /** Lowest first. */
  readonly priority: number;
}

/** Upstreams with a positive weight; if the route has none, all. Weight 0 means no traffic, not even when the others fail. */
export function inTraffic<T extends Weighted>(upstreams: readonly T[]): readonly T[] {
  const weighted = upstreams.filter(({ weight }) => weight > 0);
  return weighted.length === 0 ? upstreams : weighted;
}

/** The upstreams of a route in the order of preference for this key: by priority, then by the key's ranking. */
export function preference<T extends Prioritized>(
  upstreams: readonly T[],
  keyOf: () => string,
): readonly T[] {
  if (upstreams.length === 1) return upstreams;
  const key = keyOf();
  const serving = inTraffic(upstreams);
  const [first] = serving;
  if (first === undefined || serving.every(({ priority }) => priority === first.priority))
    return rank(serving, key);
  const priorities = [...new Set(serving.map(({ priority }) => priority))].sort((one, other) => one - other);
  return priorities.flatMap((priority) =>
    rank(
      serving.filter((upstream) => upstream.priority === priority),
      key,
    ),
  );
}

/** State of an upstream when the next one is picked. */
export interface CandidateState {
  /** Milliseconds of the clock of `Upstreams` until which it is out: ejected, or resting after a 429. 0: it is in. */
  readonly outUntil: number;
  /** Attempts of this request at it. */
  readonly tries: number;
}

/**
 * Index of the next upstream in a list ordered by preference. One that is in goes before one that is out, an untried one
 * before a tried one. When all are out one is called nevertheless: the least tried, then the one that is back in first.
 */
export function pick(states: readonly CandidateState[], now: number): number {
  let best = -1;
  for (let index = 0; index < states.length; index += 1)
    if (best === -1 || goesBefore(states[index] as CandidateState, states[best] as CandidateState, now))
      best = index;
  return best;
}

function goesBefore(one: CandidateState, other: CandidateState, now: number): boolean {
  const oneOut = one.outUntil > now;
  const otherOut = other.outUntil > now;
  if (oneOut !== otherOut) return otherOut;
  if (one.tries !== other.tries) return one.tries < other.tries;
  return oneOut && one.outUntil < other.outUntil;
}

/** First and largest back-off, in milliseconds, before an upstream is tried again. */
export const BACK_OFF_MS = { first: 50, most: 2_000 } as const;

/** Back-off before attempt number `tries` + 1 at one upstream: exponential with full jitter. `chance`: in [0, 1). */
export function backOffMs(tries: number, chance: number): number {
  if (tries === 0) return 0;
  return Math.ceil(chance * Math.min(BACK_OFF_MS.most, BACK_OFF_MS.first * 2 ** (tries - 1)));
}
