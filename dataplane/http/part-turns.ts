/** Turns for the reads of answers that are sent part by part, as they are read: downloads and exports. */
import { FairPlaces, type NoPlace, type Release } from "../lib/fair-places.ts";
import { isStoreAway } from "../store/store-away.ts";

export interface PartTurnsOptions {
  /** Reads at a time, over all organizations. */
  readonly places: number;
  readonly connections: FairPlaces;
  /** @throws when there was no place */
  readonly taken: (place: Release | NoPlace) => Release;
  /** A read that failed after so long was kept up by its store. */
  readonly slowMs: number;
}

/**
 * While the database is frozen each read takes as long as it is given, so that the waits of those behind it would add up to
 * minutes. All that wait end with the first that such a database kept up.
 */
export class PartTurns {
  readonly #options: PartTurnsOptions;
  readonly #places: FairPlaces;
  readonly #waiting = new Set<AbortController>();
  /** How many reads went well so far. */
  #read = 0;

  constructor(options: PartTurnsOptions) {
    this.#options = options;
    const { places } = options;
    this.#places = new FairPlaces({ places, waitingOfOne: Infinity, waiting: Infinity });
  }

  /**
   * Runs a read of the database when it is the organization's turn.
   * @param gone of the answer: it ends the wait, and is aborted where the database is away.
   */
  async run<Part>(organizationId: string, gone: AbortController, read: () => Promise<Part>): Promise<Part> {
    const { connections, taken } = this.#options;
    this.#waiting.add(gone);
    const releases: Release[] = [];
    try {
      for (const places of [this.#places, connections])
        releases.push(taken(await places.take(organizationId, gone.signal)));
      this.#waiting.delete(gone);
      return await this.#watched(read);
    } finally {
      this.#waiting.delete(gone);
      for (const release of releases) release();
    }
  }

  /** Ends those that wait when the database was away for as long as this read took. */
  async #watched<Part>(read: () => Promise<Part>): Promise<Part> {
    const began = performance.now();
    const before = this.#read;
    try {
      const part = await read();
      this.#read += 1;
      return part;
    } catch (error) {
      const keptUp = performance.now() - began >= this.#options.slowMs && this.#read === before;
      if (keptUp && isStoreAway(error)) for (const waiting of this.#waiting) waiting.abort(error);
      throw error;
    }
  }
}
