import type { Shutdown, ShutdownListener } from "./shutdown.ts";

/** Why a request has no time left: its own is up, or this process ends. */
type DeadlineFault = "deadline" | "shutdown";

/**
 * The time limit of a whole request, shared by everything that works on it. It has one timer and at most one listener: the
 * work that is waiting at the moment.
 */
export class Deadline {
  #at: number;
  #timer: NodeJS.Timeout;
  /** Milliseconds that were left when it was stopped; null: its time goes on. */
  #stoppedMs: number | null = null;
  /** The pauses under way; null: there was none. */
  #pauses: Set<Promise<void>> | null = null;
  #isDisposed = false;
  readonly #shutdown: Shutdown | undefined;
  #atShutdown: ShutdownListener | null = null;
  #fault: DeadlineFault | null = null;
  #listener: ((fault: DeadlineFault) => void) | null = null;

  /** Runs out after `ms`, or when the process ends before. */
  constructor(ms: number, shutdown?: Shutdown) {
    this.#at = performance.now() + ms;
    this.#timer = setTimeout(() => this.#expire("deadline"), ms);
    this.#shutdown = shutdown;
    if (shutdown?.hasCome === true) this.#expire("shutdown");
    else this.#atShutdown = shutdown?.listen(() => this.#expire("shutdown")) ?? null;
  }

  get expired(): boolean {
    return this.#fault !== null;
  }

  /** Why it ran out; null: it has not. */
  get fault(): DeadlineFault | null {
    return this.#fault;
  }

  /** Milliseconds left; 0 when it has run out. */
  get remainingMs(): number {
    return this.expired ? 0 : (this.#stoppedMs ?? Math.max(0, this.#at - performance.now()));
  }

  /** Lets no time pass until this service's own pause is over. The process's end still comes. */
  stopFor(pause: Promise<void>): void {
    this.#pauses ??= new Set();
    if (this.#pauses.has(pause)) return;
    this.#stoppedMs ??= this.remainingMs;
    clearTimeout(this.#timer);
    this.#pauses.add(pause);
    const over = () => this.#goOn(pause);
    pause.then(over, over);
  }

  #goOn(pause: Promise<void>): void {
    this.#pauses?.delete(pause);
    if (this.#stoppedMs === null || this.#pauses?.size !== 0 || this.#isDisposed || this.expired) return;
    const ms = this.#stoppedMs;
    this.#stoppedMs = null;
    this.#at = performance.now() + ms;
    this.#timer = setTimeout(() => this.#expire("deadline"), ms);
  }

  /** Calls `listener` when the time is up; it replaces the previous listener. null removes it. */
  listen(listener: ((fault: DeadlineFault) => void) | null): void {
    this.#listener = listener;
  }

  /** Stops the timer; no listener is called any more. */
  dispose(): void {
    this.#isDisposed = true;
    clearTimeout(this.#timer);
    this.#forgetShutdown();
    this.#listener = null;
  }

  #expire(fault: DeadlineFault): void {
    if (this.#fault !== null) return;
    this.#fault = fault;
    this.#forgetShutdown();
    this.#listener?.(fault);
  }

  #forgetShutdown(): void {
    if (this.#atShutdown !== null) this.#shutdown?.forget(this.#atShutdown);
    this.#atShutdown = null;
  }
}
