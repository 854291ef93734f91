/**
 * Takes turns between namespaces, because something in a namespace, such as a webhook for its objects, can make calls of the
 * API server slow: the namespace whose turn was longest ago is next, and a slow one is not waited for any more.
 */

/** After a failure that took long a namespace rests for this time, then for twice as long, and so on. */
const FIRST_REST_MS = 20_000;
const LONGEST_REST_MS = 5 * 60_000;
/** How long after its last turn a slow namespace still counts as slow. */
const SLOW_MS = 10 * 60_000;
/** Namespaces that are remembered; of more, those that had their turns longest ago are forgotten. */
const MANY_NAMESPACES = 1000;

/** Moments are monotonic milliseconds. */
interface Turn {
  readonly at: number;
  readonly isSlow: boolean;
  /** Length of its last rest; 0: it had none since it was last quick. */
  readonly restMs: number;
  readonly notBefore: number;
}

const NEW: Turn = { at: 0, isSlow: false, restMs: 0, notBefore: 0 };

export class NamespaceTurns {
  /** The last turn of each namespace, longest ago first. */
  readonly #last = new Map<string, Turn>();

  /** Whether the namespace took long lately. */
  isSlow(namespace: string): boolean {
    const turn = this.#last.get(namespace);
    return turn !== undefined && turn.isSlow && performance.now() - turn.at < SLOW_MS;
  }

  /** Whether the namespace rests after a failure. */
  rests(namespace: string): boolean {
    return performance.now() < (this.#last.get(namespace)?.notBefore ?? 0);
  }

  /** Orders items: namespaces without a turn yet, then those whose turn was longest ago; otherwise the order stays. */
  inOrder<Item>(items: readonly Item[], namespaceOf: (item: Item) => string): Item[] {
    const places = new Map([...this.#last.keys()].map((namespace, index) => [namespace, index]));
    const placeOf = (item: Item) => places.get(namespaceOf(item)) ?? -1;
    return items.toSorted((one, other) => placeOf(one) - placeOf(other));
  }

  /** Begins a turn of the namespace. */
  begin(namespace: string): void {
    const isSlow = this.isSlow(namespace);
    this.#note(namespace, { at: performance.now(), isSlow });
  }

  /** Notes that the work of its turn is not done in time. */
  tookLong(namespace: string): void {
    this.#note(namespace, { at: performance.now(), isSlow: true });
  }

  /** Notes that the work of its turn was done in time. */
  wasQuick(namespace: string): void {
    this.#note(namespace, { isSlow: false, restMs: 0, notBefore: 0 });
  }

  /** Notes that the work of its turn failed; a slow namespace then rests. */
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
