/**
 * Postgres' time, without asking it each time: pods whose clocks differ must agree on what has expired (rule 12.8), and a
 * pod whose clock is wrong must not expire what is others'.
 */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import type { Clock } from "../lib/clock.ts";

/** How often Postgres is to be asked again: a process' own timer is off by less than a millisecond in that time. */
export const CLOCK_REFRESH_MS = 10_000;

export class PostgresClock implements Clock {
  readonly #pool: CommonQueryMethods;
  /** Milliseconds that only grow, from any beginning. */
  readonly #elapsed: () => number;
  /** Unix milliseconds at `elapsed` 0; null: not asked yet. */
  #begin: number | null = null;

  private constructor(pool: CommonQueryMethods, elapsed: () => number) {
    this.#pool = pool;
    this.#elapsed = elapsed;
  }

  /** @throws Error when Postgres is away. */
  static async start(
    pool: CommonQueryMethods,
    elapsed: () => number = () => performance.now(),
  ): Promise<PostgresClock> {
    const clock = new PostgresClock(pool, elapsed);
    await clock.refresh();
    return clock;
  }

  now(): number {
    return Math.floor((this.#begin ?? 0) + this.#elapsed());
  }

  /** Asks Postgres for its time. @throws Error when it is away; the clock then goes on as before. */
  async refresh(): Promise<void> {
    const asked = this.#elapsed();
    const time = await this.#pool.oneFirst(
      sql.type(z.object({ now: z.number() }))`select clock_timestamp() as now`,
    );
    const answered = this.#elapsed();
    // `time` is of some moment between the two, which may lie far apart: the known beginning moves no further than it must.
    const known = this.#begin ?? time - (asked + answered) / 2;
    this.#begin = Math.min(Math.max(known, time - answered), time - asked);
  }
}
