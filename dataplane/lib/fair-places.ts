/**
 * A few places for the jobs of many owners. An owner's jobs get places in the order of arrival, and owners take turns:
 * a free place goes to the owner that has the fewest, of equal ones to the one that came, or gave a place back, longest
 * ago. So thirty waiting jobs of one owner make another's job wait only until the next place is free. Nor do many that wait
 * keep out an owner that has few: when as many wait as may, the last one of the owner with the most makes room.
 */

import { BySize } from "./by-size.ts";

export interface PlaceLimits {
  readonly places: number;
  /** How many places one owner may have at once; absent: all. */
  readonly placesOfOne?: number;
  /** How many of one owner may wait for a place; more are turned away. A function where owners differ. */
  readonly waitingOfOne: number | ((owner: string) => number);
  /** The same for all owners together; beyond, a job of an owner with few takes the room of another's. */
  readonly waiting: number;
}

/** A job that waits. */
interface Job {
  readonly isOwed: boolean;
  /** Ends its wait: with a place, or turned away. */
  readonly end: (noPlace?: NoPlace) => void;
}

interface Owner {
  /** Places it has. */
  held: number;
  readonly waiting: Set<Job>;
  /** How many of `waiting` count against the limit of all: those that are not owed. */
  size: number;
}

/** Gives the place back; a second call does nothing. */
export type Release = () => void;

/** Too many wait already: of all owners, or of this one, whose job may have waited until others needed the room. */
export type NoPlace = "busy" | "busy_owner";

export class FairPlaces {
  readonly #limits: PlaceLimits;
  /** Owners that have places or wait, in the order in which they came or last gave a place back. */
  readonly #owners = new Map<string, Owner>();
  #free: number;
  #waiting = 0;
  /** How many of `#waiting` count against its limit: those that are not owed. */
  #counted = 0;
  /** Owners by how many of their jobs count. */
  readonly #bySize = new BySize<Owner>();

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
    const entry = this.#owners.get(owner) ?? { held: 0, waiting: new Set(), size: 0 };
    if (!isOwed && (this.#free === 0 || this.#isServed(entry))) {
      if (entry.waiting.size >= this.#mayWait(owner)) return "busy_owner";
      if (this.#counted >= this.#limits.waiting && !this.#makeRoom(entry)) return "busy";
    }
    this.#owners.set(owner, entry);
    const { promise, resolve, reject } = Promise.withResolvers<NoPlace | undefined>();
    const job: Job = {
      isOwed,
      end: (noPlace) => {
        signal.removeEventListener("abort", leave);
        this.#remove(job, entry);
        resolve(noPlace);
      },
    };
    const leave = () => {
      this.#remove(job, entry);
      if (entry.held === 0 && entry.waiting.size === 0) this.#owners.delete(owner);
      reject(signal.reason);
    };
    signal.addEventListener("abort", leave, { once: true });
    this.#add(job, entry);
    this.#give();
    const noPlace = await promise;
    if (noPlace !== undefined) return noPlace;
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

  #add(job: Job, owner: Owner): void {
    owner.waiting.add(job);
    this.#waiting += 1;
    if (!job.isOwed) this.#count(owner, 1);
  }

  #remove(job: Job, owner: Owner): void {
    owner.waiting.delete(job);
    this.#waiting -= 1;
    if (!job.isOwed) this.#count(owner, -1);
  }

  #count(owner: Owner, more: 1 | -1): void {
    this.#counted += more;
    this.#bySize.resize(owner, owner.size + more);
  }

  /** Turns away the last job of the owner with the most, unless the newcomer would have as many itself: false. */
  #makeRoom(newcomer: Owner): boolean {
    const most = this.#bySize.largest;
    if (most === undefined || most.size <= newcomer.size + 1) return false;
    [...most.waiting].findLast(({ isOwed }) => !isOwed)?.end("busy_owner");
    return true;
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
      this.#free -= 1;
      chosen.held += 1;
      first.end();
    }
  }
}
