/**
 * Tells whether the caller of a request has left. Most requests need no AbortSignal, which with its listeners costs each a
 * microsecond: here there is at most one listener, and an AbortSignal is made only when somebody asks for it.
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

  /** Calls `listener` at the cancellation; it replaces the previous listener. */
  listen(listener: () => void): void {
    this.#listener = listener;
  }

  /** Removes this listener if it is the current one. */
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
