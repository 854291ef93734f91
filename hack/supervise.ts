/**
 * Keeps a program running, as Kubernetes would: one that ends by itself is started again, until it fails too often.
 */
import type { ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import type { Say } from "./cache.ts";
import { hasEnded, stopProcess } from "./processes.ts";

/** After this many ends in a row, each but perhaps the first within `QUICK_MS` of its start, the supervisor gives up. */
const MAX_QUICK_ENDS = 5;
const QUICK_MS = 10_000;

export interface SupervisorOptions {
  readonly name: string;
  readonly start: () => ChildProcess | Promise<ChildProcess>;
  /** Signal that asks the program to end. */
  readonly stopSignal: NodeJS.Signals;
  readonly say: Say;
  /** Called after each start. */
  readonly onStart: () => void;
  /** Called once, when the program cannot be kept running. */
  readonly onGiveUp: (reason: string) => void;
}

export class Supervisor {
  readonly #options: SupervisorOptions;
  #child: ChildProcess | null = null;
  #stopping = false;
  #quickEnds = 0;

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  get pid(): number | null {
    return this.#child === null || hasEnded(this.#child) ? null : (this.#child.pid ?? null);
  }

  /** Sends a signal to the program if it runs. */
  tell(signal: NodeJS.Signals): void {
    if (this.#child !== null && !hasEnded(this.#child)) this.#child.kill(signal);
  }

  /** Asks the program to end and waits; SIGKILL after `waitMs`. */
  async stop(waitMs: number): Promise<void> {
    this.#stopping = true;
    if (this.#child !== null) await stopProcess(this.#child, this.#options.stopSignal, waitMs);
  }

  /** @throws what `start` throws. */
  async launch(): Promise<void> {
    const startedAt = Date.now();
    const child = await this.#options.start();
    this.#child = child;
    if (this.#stopping) return stopProcess(child, this.#options.stopSignal, QUICK_MS);
    child.once("exit", (code, signal) => {
      void this.#ended(signal ?? `exit ${code}`, Date.now() - startedAt);
    });
    this.#options.onStart();
  }

  async #ended(how: string, lifetimeMs: number): Promise<void> {
    if (this.#stopping) return;
    const { name, say, onGiveUp } = this.#options;
    this.#quickEnds = lifetimeMs < QUICK_MS ? this.#quickEnds + 1 : 1;
    if (this.#quickEnds >= MAX_QUICK_ENDS) return onGiveUp(`${name} ended ${this.#quickEnds} times (${how})`);
    say(`${name} ended (${how}); starting it again`);
    await sleep(100 * 2 ** this.#quickEnds);
    if (this.#stopping) return;
    try {
      await this.launch();
    } catch (error) {
      await this.#ended(error instanceof Error ? error.message : String(error), 0);
    }
  }
}
