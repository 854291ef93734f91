/**
 * Decides how soon a change leads to a round. A round publishes for everybody: every pod reads its snapshot, and a pod that was
 * not done with the last one begins anew. So a namespace that is not trusted has `AT_ONCE` changes at once, and then one every
 * other second. Changes in between are published by that round, or by an earlier one for another namespace.
 */
const AT_ONCE = 10;
const PAUSE_MS = 2000;
/** Number of remembered namespaces from which on the quiet ones are forgotten. */
const MANY_NAMESPACES = 1000;

export class ChangePace {
  readonly #due: () => void;
  /** By namespace, when its last change would have been due if none were allowed at once. Monotonic milliseconds. */
  readonly #spentUntil = new Map<string, number>();
  /** Namespaces whose change waits. */
  readonly #waiting = new Map<string, NodeJS.Timeout>();

  /** @param due called when it is time for a round; several changes in a row may call it more than once */
  constructor(due: () => void) {
    this.#due = due;
  }

  /** Notes a change. It must be called for the first one after a round began; for further ones it need not be. */
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

  /** Drops the waiting changes, because the round that begins finds them all. */
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
