/** Wakes one waiter. Raised before the wait begins, it ends the wait at once. */
export class WakeSignal {
  #rung = false;
  #wake: (() => void) | null = null;

  raise(): void {
    this.#rung = true;
    this.#wake?.();
  }

  async wait(longestMs: number): Promise<void> {
    if (!this.#rung)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, longestMs);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    this.#wake = null;
    this.#rung = false;
  }
}
