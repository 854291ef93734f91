/**
 * Whether whoever asked has left. Most requests need neither an AbortSignal nor its lists of listeners, which cost
 * each of them a microsecond: there is one listener here, whoever waits at the moment, and a signal for those who
 * ask for one.
 */
export class Cancellation {
  #aborted = false;
  #listener: (() => void) | null = null;
  #controller: AbortController | null = null;

  /** Follows a signal. */
  static by(signal: AbortSignal): Cancellation {
    const cancellation = new Cancellation();
    if (signal.aborted) cancellation.abort();
    else signal.addEventListener("abort", () => cancellation.abort(), { once: true });
    return cancellation;
  }

  get aborted(): boolean {
    return this.#aborted;
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  /** Calls `listener`, and no earlier one, when it comes to that. */
  listen(listener: () => void): void {
    this.#listener = listener;
  }

  /** Does not call this listener any more. */
  forget(listener: () => void): void {
    if (this.#listener === listener) this.#listener = null;
  }

  abort(): void {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#listener?.();
    this.#controller?.abort();
  }
}
