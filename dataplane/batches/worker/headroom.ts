/** How busy this process is with what somebody waits for: not at all, or with time to spare, or without. */
export type LiveLoad = "none" | "light" | "heavy";

const LOOK_MS = 100;
/** Items that run at first beside live requests, until it is known what they cost. */
const FIRST_PLACES = 4;

/**
 * How many items may run at once beside live requests, which come first: all places while nobody waits; else a few
 * at first, half as many at each look that finds the process short of time, one more at each that does not. One
 * always remains, so that a batch goes on below whatever comes in.
 */
export class Headroom {
  readonly #most: number;
  readonly #load: () => LiveLoad;
  #places: number;
  /** An item began since the last look. */
  #isAtWork = false;
  #lookedAt = Number.NEGATIVE_INFINITY;

  /** `load`: since it was last asked. */
  constructor(most: number, load: () => LiveLoad) {
    this.#most = most;
    this.#load = load;
    this.#places = most;
  }

  /** An item began. */
  began(): void {
    this.#isAtWork = true;
  }

  /** `now` in milliseconds of a clock that never goes back; `running`: items at the moment. */
  places(now: number, running: number): number {
    if (now - this.#lookedAt < LOOK_MS) return this.#places;
    this.#lookedAt = now;
    const load = this.#load();
    if (load === "none") this.#places = this.#most;
    else if (running === 0 && !this.#isAtWork) this.#places = Math.min(FIRST_PLACES, this.#places);
    else if (load === "light") this.#places = Math.min(this.#most, this.#places + 1);
    else this.#places = Math.max(1, Math.floor(this.#places / 2));
    // Items that began together end together, and each look may come when none runs.
    this.#isAtWork = false;
    return this.#places;
  }
}
