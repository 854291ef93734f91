/**
 * The longest turn of this event loop in milliseconds of this thread's own CPU time: other programs on the machine
 * can stretch a turn's wall time, but not this.
 */
export class LoopTurns {
  #longest = 0;
  #last = process.threadCpuUsage();
  readonly #timer = setInterval(() => this.#note(), 2);

  #note(): void {
    const { user, system } = process.threadCpuUsage(this.#last);
    this.#longest = Math.max(this.#longest, (user + system) / 1000);
    this.#last = process.threadCpuUsage();
  }

  /** The longest turn so far, in milliseconds. */
  stop(): number {
    clearInterval(this.#timer);
    return this.#longest;
  }
}
