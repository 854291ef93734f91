import { computedMs } from "./computed.ts";

const RUNS = 3;

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

/**
 * The least that `measure` tells; it is asked again, twice at most, while that is not below `boundMs`. Work that is too long for
 * a turn is so each time; a collection of garbage that other tests left, or a core that others slow down, is not.
 */
export async function leastOf(boundMs: number, measure: () => Promise<number>): Promise<number> {
  let least = Infinity;
  for (let run = 1; run <= RUNS && least >= boundMs; run += 1) least = Math.min(least, await measure());
  return least;
}
