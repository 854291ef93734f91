/**
 * Remembers whether an organization, or a key with limits, may begin another request, so that Redis need not be asked (rule
 * 7.1).
 */
import { RecentMap } from "../../lib/recent-map.ts";

/** Redis is asked again after so long. */
const FRESH_MS = 1_000;
/** More than a process admits in `FRESH_MS`, so that no payer's many keys make another's answer be forgotten while it is fresh. */
const MOST_KNOWN = 10_000;

export class KnownCredit {
  /** `performance.now()` at which Redis last said that the organization, or the key where that has limits, may begin. */
  readonly #fineAt = new RecentMap<number>(MOST_KNOWN);

  /** Whether Redis said within the last second that there is credit, and room within the limits. */
  mayBegin(payer: string): boolean {
    return performance.now() - (this.#fineAt.get(payer) ?? Number.NEGATIVE_INFINITY) < FRESH_MS;
  }

  learn(payer: string, fine: boolean): void {
    this.#fineAt.set(payer, fine ? performance.now() : Number.NEGATIVE_INFINITY);
  }
}
