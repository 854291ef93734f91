/**
 * Remembers whether an organization, or a key with limits, may begin another request, so that Redis need not be asked (rule
 * 7.1).
 */

/** Redis is asked again after so long. */
const FRESH_MS = 1_000;
const MOST_KNOWN = 10_000;

export class KnownCredit {
  /**
   * `performance.now()` at which Redis last said that the organization, or the key where that has limits, may begin. Entries
   * are never taken out singly: a Map whose entries come and go leaves garbage (lib/roster.ts).
   */
  readonly #fineAt = new Map<string, number>();

  /** Whether Redis said within the last second that there is credit, and room within the limits. */
  mayBegin(payer: string): boolean {
    return performance.now() - (this.#fineAt.get(payer) ?? Number.NEGATIVE_INFINITY) < FRESH_MS;
  }

  learn(payer: string, fine: boolean): void {
    if (this.#fineAt.size >= MOST_KNOWN && !this.#fineAt.has(payer)) this.#fineAt.clear();
    this.#fineAt.set(payer, fine ? performance.now() : Number.NEGATIVE_INFINITY);
  }
}
