/**
 * A map of at most twice `max` entries that keeps those used lately: when `max` new ones have come since the last time, all
 * that were not used meanwhile are forgotten. Unlike an LRU cache it never takes out entries singly: a Map whose entries come
 * and go leaves garbage (roster.ts), and one that is never full costs what a Map does.
 */
export class RecentMap<Value> {
  readonly #max: number;
  /** Entries set or used since `#earlier` was replaced. */
  #recent = new Map<string, Value>();
  #earlier: ReadonlyMap<string, Value> = new Map();

  constructor(max: number) {
    this.#max = max;
  }

  /** Returns a value and marks it as used. */
  get(key: string): Value | undefined {
    const value = this.#recent.get(key);
    if (value !== undefined || this.#earlier.size === 0) return value;
    const earlier = this.#earlier.get(key);
    if (earlier !== undefined) this.set(key, earlier);
    return earlier;
  }

  set(key: string, value: Value): void {
    if (this.#recent.size >= this.#max && !this.#recent.has(key)) {
      this.#earlier = this.#recent;
      this.#recent = new Map();
    }
    this.#recent.set(key, value);
  }
}
