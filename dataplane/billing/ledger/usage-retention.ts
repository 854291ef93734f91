/**
 * Closes months of usage that are older than RETENTION_USAGE (rule 12.5), in small steps that stand in the database
 * (store/migrations/0007_closings.sql): any data plane goes on with the next one, one at a time, and one that dies
 * between two of them, or in one, costs nothing.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { HOUR_MS, type Clock } from "../../lib/clock.ts";
import { Recurring } from "../../lib/recurring.ts";

/** How often it is looked whether there is something to do, or left to do. */
const LOOK_MS = 60_000;
/** After a look that left nothing. */
const DONE_MS = HOUR_MS;
/** Rows of one step: a second or two of one backend, on a small and busy server (test/bench/retention.ts). */
const SUMMED = 50_000;
const MOVED = 2_000;
/** While others read, the next try to take the table is made so much later; each may make charges wait for 0.2 s. */
const PAUSE_MS = 1_000;
const MOST_TRIES = 5;
/** A look ends after so long; the next one goes on. */
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
  /** Rows of closed months are dropped; else they stay in tables of their own. */
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

  /** Waits for the step at hand. */
  stop(): Promise<void> {
    this.#stopped = true;
    return this.#loop.stop();
  }

  /**
   * Does what is left to do, as far as nobody else is at it. Returns the last step: `done`, `busy`, `waits`, or another when
   * the time was up. @throws Error when a month's sums are not those of its rows, or Postgres is away.
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
