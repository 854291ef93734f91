import type { Logger } from "pino";

/** Repeats a task, never two runs at the same time. After a failure, which is logged, the next run waits a little longer. */
export class Recurring {
  readonly #log: Logger;
  readonly #name: string;
  readonly #everyMs: number;
  readonly #task: () => Promise<unknown>;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #failures = 0;
  #stopped = false;

  constructor(log: Logger, name: string, everyMs: number, task: () => Promise<unknown>) {
    this.#log = log;
    this.#name = name;
    this.#everyMs = everyMs;
    this.#task = task;
  }

  start(): void {
    this.#next(0);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  #next(delayMs: number): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#once();
    }, delayMs);
  }

  async #once(): Promise<void> {
    try {
      await this.#task();
      this.#failures = 0;
    } catch (error) {
      this.#failures += 1;
      // While a store is down every run fails: only the first failure and every 50th are logged.
      if (this.#failures === 1 || this.#failures % 50 === 0) {
        this.#log.warn({ err: error, task: this.#name, failures: this.#failures }, "a recurring task failed");
      }
    }
    this.#next(Math.max(this.#everyMs, this.#failures > 0 ? 500 : 0));
  }
}
