/**
 * A limit on concurrent items: halved when an item is refused, raised by one after as many successes as it allows. A limit
 * that begins low grows with each success until the first refusal.
 */
export class Pace {
  limit: number;
  /** No item begins before this time, in milliseconds of the caller's clock. */
  blockedUntil = 0;
  #successes = 0;
  #wasRefused = false;
  readonly #most: number;

  /** Begins with `limit`, and never grows beyond `most`. */
  constructor(most: number, limit = most) {
    this.#most = most;
    this.limit = limit;
  }

  refused(now: number, waitMs: number, running: number): void {
    // Of items that began together the first refusal halves the limit; the others say nothing new.
    if (now >= this.blockedUntil) this.limit = Math.max(1, Math.floor(Math.min(this.limit, running) / 2));
    this.blockedUntil = Math.max(this.blockedUntil, now + waitMs);
    this.#successes = 0;
    this.#wasRefused = true;
  }

  succeeded(): void {
    this.#successes += 1;
    if (this.limit >= this.#most || (this.#wasRefused && this.#successes < this.limit)) return;
    this.limit += 1;
    this.#successes = 0;
  }
}
