import { computedMs } from "./computed.ts";

/**
 * The longest turn of this event loop in milliseconds of this thread's own CPU time: other programs on the machine
 * can stretch a turn's wall time, but not this.
 */
export class LoopTurns {
  #longest = 0;
  #last = computedMs();
  readonly #timer = setInterval(() => this.#note(), 2);

  #note(): void {
    const now = computedMs();
    this.#longest = Math.max(this.#longest, now - this.#last);
    this.#last = now;
  }

  /** The longest turn so far, in milliseconds. */
  stop(): number {
    clearInterval(this.#timer);
    return this.#longest;
  }
}
