/**
 * How soon a change leads to a round. What a round finds is published for everybody: every pod reads it, and one that was
 * not done with the last one begins anew. So of a namespace that is not trusted a number of changes count at once, and then
 * one every other second. What comes meanwhile is in the round that this one leads to, or in an earlier one of somebody else.
 */
const AT_ONCE = 10;
const PAUSE_MS = 2000;
/** Namespaces that are remembered before those that were quiet are forgotten. */
const MANY_NAMESPACES = 1000;

export class ChangePace {
  readonly #due: () => void;
  /** Of each namespace when the last of its changes would have been due, had none been allowed at once. Monotonic milliseconds. */
  readonly #spentUntil = new Map<string, number>();
  /** Namespaces whose change waits. */
  readonly #waiting = new Map<string, NodeJS.Timeout>();

  /** @param due told when it is time for a round; of several changes in a row more than once */
  constructor(due: () => void) {
    this.#due = due;
  }

  /** To be told of the first change after a round began; of further ones it need not be. */
  changed(namespace: string): void {
    if (this.#waiting.has(namespace)) return;
    const now = performance.now();
    const spent = Math.max(this.#spentUntil.get(namespace) ?? 0, now) + PAUSE_MS;
    const waitMs = spent - now - AT_ONCE * PAUSE_MS;
    if (waitMs <= 0) {
      this.#spend(namespace, spent, now);
      this.#due();
      return;
    }
    const timer = setTimeout(() => {
      this.#waiting.delete(namespace);
      this.#spend(namespace, spent, performance.now());
      this.#due();
    }, waitMs).unref();
    this.#waiting.set(namespace, timer);
  }

  /** A round begins, which finds whatever has changed until now. */
  roundBegins(): void {
    for (const timer of this.#waiting.values()) clearTimeout(timer);
    this.#waiting.clear();
  }

  #spend(namespace: string, until: number, now: number): void {
    if (this.#spentUntil.size >= MANY_NAMESPACES)
      for (const [quiet, at] of this.#spentUntil) if (at <= now) this.#spentUntil.delete(quiet);
    this.#spentUntil.set(namespace, until);
  }
}
