/**
 * The one time limit of a whole request, shared by everything that works on it. One timer, and one listener at a
 * time: whatever waits at the moment.
 */
export class Deadline {
  readonly #at: number;
  readonly #timer: NodeJS.Timeout;
  #expired = false;
  #listener: (() => void) | null = null;

  /** Runs out after `ms`. */
  constructor(ms: number) {
    this.#at = performance.now() + ms;
    this.#timer = setTimeout(() => {
      this.#expired = true;
      this.#listener?.();
    }, ms);
  }

  get expired(): boolean {
    return this.#expired;
  }

  /** Milliseconds left; 0 when it has run out. */
  get remainingMs(): number {
    return this.#expired ? 0 : Math.max(0, this.#at - performance.now());
  }

  /** Calls `listener` (and no earlier one) when the time is up; null: nobody. */
  listen(listener: (() => void) | null): void {
    this.#listener = listener;
  }

  /** Nobody will be told any more. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.#listener = null;
  }
}
