/** How busy this process is with live requests: not at all, with time to spare, or without. */
export type LiveLoad = "none" | "light" | "heavy";

/** How often the load is looked at. */
export const LOOK_MS = 100;
/** Items that run beside live requests at first, until their cost is known. */
const FIRST_PLACES = 4;

/**
 * How many items may run at once beside live requests, which come first. Without live requests: all places. Else a few at
 * first, half as many after each look that finds the process short of time, one more after each that does not. One place
 * always remains, so that a batch makes progress under any load.
 */
export class Headroom {
  readonly #most: number;
  readonly #load: () => LiveLoad;
  #places: number;
  /** Whether an item began since the last look. */
  #isAtWork = false;
  #lookedAt = Number.NEGATIVE_INFINITY;

  /** `load`: the load since its last call. */
  constructor(most: number, load: () => LiveLoad) {
    this.#most = most;
    this.#load = load;
    this.#places = most;
  }

  /** Whether live requests hold places back, of which a later look may give some. */
  get isShort(): boolean {
    return this.#places < this.#most;
  }

  /** Notes that an item began. */
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
