/**
 * Whose turn it is, where calls of the API server can be made to take long by what is in a namespace, such as a webhook for its
 * objects: who had a turn longest ago is next, and who took long is waited for no more.
 */

/** After a failure that took long a namespace rests for this time, then for twice as long, and so on. */
const FIRST_REST_MS = 20_000;
const LONGEST_REST_MS = 5 * 60_000;
/** That a namespace took long counts for so long after its last turn. */
const SLOW_MS = 10 * 60_000;
/** Namespaces that are remembered; of more, those that had their turns longest ago are forgotten. */
const MANY_NAMESPACES = 1000;

/** Moments are monotonic milliseconds. */
interface Turn {
  readonly at: number;
  readonly isSlow: boolean;
  /** 0: it had no failure since it last went well. */
  readonly restMs: number;
  readonly notBefore: number;
}

const NEW: Turn = { at: 0, isSlow: false, restMs: 0, notBefore: 0 };

export class NamespaceTurns {
  /** Longest ago first. */
  readonly #last = new Map<string, Turn>();

  /** Whether it took long lately. */
  isSlow(namespace: string): boolean {
    const turn = this.#last.get(namespace);
    return turn !== undefined && turn.isSlow && performance.now() - turn.at < SLOW_MS;
  }

  /** Whether it rests after a failure. */
  rests(namespace: string): boolean {
    return performance.now() < (this.#last.get(namespace)?.notBefore ?? 0);
  }

  /** Those that had no turn yet first, then by how long ago they had one; otherwise in their order. */
  inOrder<Item>(items: readonly Item[], namespaceOf: (item: Item) => string): Item[] {
    const places = new Map([...this.#last.keys()].map((namespace, index) => [namespace, index]));
    const placeOf = (item: Item) => places.get(namespaceOf(item)) ?? -1;
    return items.toSorted((one, other) => placeOf(one) - placeOf(other));
  }

  /** Its turn begins. */
  begin(namespace: string): void {
    const isSlow = this.isSlow(namespace);
    this.#note(namespace, { at: performance.now(), isSlow });
  }

  /** What it was given to do is not done in time. */
  tookLong(namespace: string): void {
    this.#note(namespace, { at: performance.now(), isSlow: true });
  }

  /** What it was given to do was done in time. */
  wasQuick(namespace: string): void {
    this.#note(namespace, { isSlow: false, restMs: 0, notBefore: 0 });
  }

  /** What it was given to do failed; if that took long it rests. */
  failed(namespace: string): void {
    if (!this.isSlow(namespace)) return;
    const before = this.#last.get(namespace)?.restMs ?? 0;
    const restMs = before === 0 ? FIRST_REST_MS : Math.min(LONGEST_REST_MS, 2 * before);
    this.#note(namespace, { restMs, notBefore: performance.now() + restMs });
  }

  #note(namespace: string, change: Partial<Turn>): void {
    const before = this.#last.get(namespace) ?? NEW;
    if (change.at !== undefined) this.#last.delete(namespace);
    const [oldest] = this.#last.keys();
    if (oldest !== undefined && this.#last.size >= MANY_NAMESPACES && !this.#last.has(namespace))
      this.#last.delete(oldest);
    this.#last.set(namespace, { ...before, ...change });
  }
}
