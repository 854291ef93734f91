const SHORTEST_MS = 1_000;
const LONGEST_MS = 60_000;
const MOST_REMEMBERED = 1_000;

/** Batches whose reading, ending or clearing failed here. They rest, longer each time, so that they hold up no other. */
export class BatchBackOff {
  readonly #batches = new Map<string, { readonly failures: number; readonly until: number }>();

  /** `now`: Unix milliseconds. */
  failed(id: string, now: number): void {
    const failures = (this.#batches.get(id)?.failures ?? 0) + 1;
    this.#batches.delete(id);
    const restMs = Math.min(LONGEST_MS, SHORTEST_MS * 2 ** Math.min(failures - 1, 10));
    this.#batches.set(id, { failures, until: now + restMs });
    const [oldest] = this.#batches.keys();
    if (this.#batches.size > MOST_REMEMBERED && oldest !== undefined) this.#batches.delete(oldest);
  }

  wentWell(id: string): void {
    this.#batches.delete(id);
  }

  /** All remembered batches, also those whose rest is over. */
  get known(): readonly string[] {
    return [...this.#batches.keys()];
  }

  /** The batches that rest now. */
  ids(now: number): string[] {
    return [...this.#batches].flatMap(([id, { until }]) => (now < until ? [id] : []));
  }
}
