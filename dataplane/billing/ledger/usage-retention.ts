/**
 * Closes months of usage that are older than RETENTION_USAGE (rule 12.5), in small steps that are kept in the database
 * (store/migrations/0007_closings.sql): any data plane takes the next step, one at a time, and one that dies in a step or
 * between two loses nothing.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { HOUR_MS, type Clock } from "../../lib/clock.ts";
import { Recurring } from "../../lib/recurring.ts";

/** How often to look for a month to close, or to continue with. */
const LOOK_MS = 60_000;
/** Wait after a look that left nothing to do. */
const DONE_MS = HOUR_MS;
/** Rows of one step: a second or two of one backend, on a small and busy server (test/bench/retention.ts). */
const SUMMED = 50_000;
const MOVED = 2_000;
/** Pause before the next try to lock the table while others read it; each try may make charges wait for 0.2 s. */
const PAUSE_MS = 1_000;
const MOST_TRIES = 5;
/** Longest look; the next one continues. */
const MOST_MS = 300_000;

const stepSchema = z.object({
  step: z.enum(["summed", "checked", "closed", "moved", "waits", "busy", "done"]),
});
export type RetentionStep = z.infer<typeof stepSchema>["step"];

export interface UsageRetentionOptions {
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
  readonly retentionMs: number;
  /** Whether rows of closed months are dropped; else they stay in tables of their own. */
  readonly dropRows: boolean;
  /** Rows of one step. */
  readonly summed?: number;
  readonly moved?: number;
}

export class UsageRetention {
  readonly #options: UsageRetentionOptions;
  readonly #loop: Recurring;
  #doneAt = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(options: UsageRetentionOptions) {
    this.#options = options;
    this.#loop = new Recurring(options.log, "usage retention", LOOK_MS, async () => {
      if (performance.now() - this.#doneAt >= DONE_MS) await this.look();
    });
  }

  start(): void {
    this.#loop.start();
  }

  /** Waits for the step that is running. */
  stop(): Promise<void> {
    this.#stopped = true;
    return this.#loop.stop();
  }

  /**
   * Takes the steps that are left, unless another data plane is taking them. Returns the last step: `done`, `busy`, `waits`, or
   * another when the time was up. @throws Error when a month's sums are not those of its rows, or Postgres is away.
   */
  async look(): Promise<RetentionStep> {
    const until = performance.now() + MOST_MS;
    let step: RetentionStep = "summed";
    for (let tries = 0; !this.#stopped && performance.now() < until;) {
      step = await this.step();
      if (step === "done") this.#doneAt = performance.now();
      if (step === "done" || step === "busy") break;
      if (step !== "waits") continue;
      tries += 1;
      if (tries === MOST_TRIES) {
        this.#options.log.warn("a month of usage is not closed yet: others read its table all the time");
        break;
      }
      await sleep(PAUSE_MS);
    }
    return step;
  }

  /** One step, in a transaction of its own. */
  async step(): Promise<RetentionStep> {
    const { pool, clock, log, retentionMs, dropRows, summed = SUMMED, moved = MOVED } = this.#options;
    const oldest = new Date(clock.now() - retentionMs).toISOString();
    const step = await pool.oneFirst(sql.type(stepSchema)`
      select close_usage(${oldest}, ${dropRows}, ${summed}, ${moved}) as step
    `);
    if (step === "closed") log.info({ older: oldest, dropRows }, "closed a month of usage");
    return step;
  }
}
