/**
 * Deletes lines of the audit log after RETENTION_AUDIT, and keys that were deleted that long ago and have no usage: an
 * organization may make and delete keys all day, and nothing is left that names those. Keys with usage stay, as reports
 * name them.
 */
import type { Logger } from "pino";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { HOUR_MS } from "../lib/clock.ts";
import { Recurring } from "../lib/recurring.ts";

/** Rows of one step: some tens of milliseconds. */
const AT_ONCE = 2_000;
/** Most steps of a round, more than an hour needs; the next round continues. */
const MOST_STEPS = 1_000;

export interface KeyRetentionOptions {
  readonly pool: DatabasePool;
  readonly log: Logger;
  readonly retentionMs: number;
  /** Rows of one step. */
  readonly atOnce?: number;
}

export class KeyRetention {
  readonly #options: KeyRetentionOptions;
  readonly #loop: Recurring;
  #stopped = false;

  constructor(options: KeyRetentionOptions) {
    this.#options = options;
    this.#loop = new Recurring(options.log, "retention of keys", HOUR_MS, () => this.forget());
  }

  start(): void {
    this.#loop.start();
  }

  /** Ends after the step that is running. */
  stop(): Promise<void> {
    this.#stopped = true;
    return this.#loop.stop();
  }

  /** Deletes all that is old by now, except what another process is deleting. */
  async forget(): Promise<void> {
    for (const step of [() => this.#forgetLines(), () => this.#forgetKeys()])
      for (let steps = 0; steps < MOST_STEPS && !this.#stopped && (await step()); steps += 1);
  }

  /** Deletes the oldest lines of the audit log, whose positions follow their time. False: there may be no more. */
  async #forgetLines(): Promise<boolean> {
    const { pool, atOnce = AT_ONCE } = this.#options;
    const { rowCount } = await pool.query(sql.unsafe`
      delete from audit_log where position in (
        select position from (select position, at from audit_log order by position limit ${atOnce}) oldest
        where at < ${this.#oldest()}
      )
    `);
    return rowCount === atOnce;
  }

  /** Deletes keys without usage that were deleted through the admin API. False: there may be no more. */
  async #forgetKeys(): Promise<boolean> {
    const { pool, atOnce = AT_ONCE } = this.#options;
    const looked = await pool.oneFirst(sql.type(z.object({ looked: z.bigint().transform(Number) }))`
      with old as (
        select id, exists (
          select from usage_daily used
          where used.organization_id = api_keys.organization_id and used.scope_id = api_keys.id
        ) as has_usage
        from api_keys
        where source = 'created' and deleted_at < ${this.#oldest()} and not has_usage
        order by deleted_at limit ${atOnce} for update skip locked
      ), stay as (
        update api_keys set has_usage = true from old where api_keys.id = old.id and old.has_usage
      ), gone as (
        delete from api_keys using old where api_keys.id = old.id and not old.has_usage
      )
      select count(*) as looked from old
    `);
    return looked === atOnce;
  }

  #oldest = () => sql.fragment`now() - ${this.#options.retentionMs / 1_000} * interval '1 second'`;
}
