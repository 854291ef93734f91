/** A rate limit that allows bursts: a token bucket. */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #size: number;
  #level: number;
  #at: number;

  /** The bucket is full at first. `now`, here and below: monotonic milliseconds. */
  constructor(perSecond: number, size: number, now: number) {
    this.#perSecond = perSecond;
    this.#size = size;
    this.#level = size;
    this.#at = now;
  }

  /** Tokens in the bucket. */
  level(now: number): number {
    this.#level = Math.min(this.#size, this.#level + (Math.max(0, now - this.#at) * this.#perSecond) / 1000);
    this.#at = now;
    return this.#level;
  }

  /** Takes tokens if there are enough. @returns 0, or the milliseconds until there will be enough. */
  take(tokens: number, now: number): number {
    const level = this.level(now);
    // A request for more than the bucket holds is granted when the bucket is full.
    const needed = Math.min(tokens, this.#size);
    if (level < needed) return ((needed - level) * 1000) / this.#perSecond;
    this.#level = level - tokens;
    return 0;
  }

  /** Takes tokens even if there are too few: the level becomes negative. */
  spend(tokens: number, now: number): void {
    this.#level = this.level(now) - tokens;
  }
}
