/**
 * A few places for the jobs of many owners. An owner's jobs get places in the order of arrival, and owners take turns:
 * a free place goes to the owner that has the fewest, of equal ones to the one that came, or gave a place back, longest
 * ago. So thirty waiting jobs of one owner make another's job wait only until the next place is free.
 */

export interface PlaceLimits {
  readonly places: number;
  /** How many places one owner may have at once; absent: all. */
  readonly placesOfOne?: number;
  /** How many of one owner may wait for a place; more are turned away. A function where owners differ. */
  readonly waitingOfOne: number | ((owner: string) => number);
  /** The same for all owners together. */
  readonly waiting: number;
}

interface Owner {
  /** Places it has. */
  held: number;
  readonly waiting: Set<() => void>;
}

/** Gives the place back; a second call does nothing. */
export type Release = () => void;

/** Too many wait already: of all owners, or of this one. */
export type NoPlace = "busy" | "busy_owner";

export class FairPlaces {
  readonly #limits: PlaceLimits;
  /** Owners that have places or wait, in the order in which they came or last gave a place back. */
  readonly #owners = new Map<string, Owner>();
  #free: number;
  #waiting = 0;
  /** Owed jobs among `#waiting`: they do not count against its limit. */
  #owed = 0;

  constructor(limits: PlaceLimits) {
    this.#limits = limits;
    this.#free = limits.places;
  }

  /**
   * Takes a place as soon as it is the owner's turn.
   * @param isOwed the job is not turned away however many wait, and only other jobs of its owner may be because of it.
   * @throws the reason of `signal` when it aborts before.
   */
  async take(owner: string, signal: AbortSignal, isOwed = false): Promise<Release | NoPlace> {
    signal.throwIfAborted();
    const entry = this.#owners.get(owner) ?? { held: 0, waiting: new Set() };
    if (!isOwed && (this.#free === 0 || this.#isServed(entry))) {
      if (this.#waiting - this.#owed >= this.#limits.waiting) return "busy";
      if (entry.waiting.size >= this.#mayWait(owner)) return "busy_owner";
    }
    this.#owners.set(owner, entry);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const leave = () => {
      entry.waiting.delete(grant);
      this.#waiting -= 1;
      if (isOwed) this.#owed -= 1;
      if (entry.held === 0 && entry.waiting.size === 0) this.#owners.delete(owner);
      reject(signal.reason);
    };
    const grant = () => {
      signal.removeEventListener("abort", leave);
      if (isOwed) this.#owed -= 1;
      resolve();
    };
    signal.addEventListener("abort", leave, { once: true });
    entry.waiting.add(grant);
    this.#waiting += 1;
    if (isOwed) this.#owed += 1;
    this.#give();
    await promise;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      entry.held -= 1;
      this.#free += 1;
      this.#owners.delete(owner);
      if (entry.held > 0 || entry.waiting.size > 0) this.#owners.set(owner, entry);
      this.#give();
    };
  }

  #mayWait(owner: string): number {
    const { waitingOfOne } = this.#limits;
    return typeof waitingOfOne === "number" ? waitingOfOne : waitingOfOne(owner);
  }

  /** Whether an owner has as many places as one may have. */
  #isServed({ held }: Owner): boolean {
    return held >= (this.#limits.placesOfOne ?? Number.POSITIVE_INFINITY);
  }

  #give(): void {
    while (this.#free > 0 && this.#waiting > 0) {
      let chosen: Owner | undefined;
      for (const candidate of this.#owners.values()) {
        if (candidate.waiting.size === 0 || this.#isServed(candidate)) continue;
        if (chosen === undefined || candidate.held < chosen.held) chosen = candidate;
      }
      if (chosen === undefined) return;
      const [first] = chosen.waiting;
      if (first === undefined) return;
      chosen.waiting.delete(first);
      this.#waiting -= 1;
      this.#free -= 1;
      chosen.held += 1;
      first();
    }
  }
}
