/** A limit of rate that allows bursts: a bucket of tokens that fills evenly. */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #size: number;
  #level: number;
  #at: number;

  /** Full at first. `now` here and below: milliseconds of a clock that never goes back. */
  constructor(perSecond: number, size: number, now: number) {
    this.#perSecond = perSecond;
    this.#size = size;
    this.#level = size;
    this.#at = now;
  }

  /** Tokens that are there. */
  level(now: number): number {
    this.#level = Math.min(this.#size, this.#level + (Math.max(0, now - this.#at) * this.#perSecond) / 1000);
    this.#at = now;
    return this.#level;
  }

  /** Takes so many if they are there. @returns 0, or in how many milliseconds they will be. */
  take(tokens: number, now: number): number {
    const level = this.level(now);
    // More than it can hold may go when it is full.
    const needed = Math.min(tokens, this.#size);
    if (level < needed) return ((needed - level) * 1000) / this.#perSecond;
    this.#level = level - tokens;
    return 0;
  }

  /** Takes tokens that are not there as well: the next ones wait for them. */
  spend(tokens: number, now: number): void {
    this.#level = this.level(now) - tokens;
  }
}
