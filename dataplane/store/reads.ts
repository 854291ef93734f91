/**
 * Decides where reports and the lists of the admin API are read: at a replica when there is one (DATABASE_READ_URL,
 * rule 12.3); at the primary what must be fresh, and everything while the replica is away or too far behind.
 */

import type { Logger } from "pino";
import { sql, StatementTimeoutError, type CommonQueryMethods, type DatabasePool } from "slonik";
import { z } from "zod";
import { inTime } from "../lib/in-time.ts";
import { Recurring } from "../lib/recurring.ts";
import { metrics } from "../telemetry/metrics.ts";
import { queryMethods } from "./pool-turns.ts";
import { refusesData } from "./postgres.ts";
import type { RedisStore } from "./redis-servers.ts";

/** How often the replica is asked how far it is. */
const PROBE_MS = 1_000;
/** A replica that answers later is away: running reads are then done by the primary. */
const ANSWERS_WITHIN_MS = 2_000;
/** A replica that is further behind is not read. */
const MOST_LAG_MS = 30_000;
/** How long an organization that changed something reads the primary: the change's own time, and more than MOST_LAG_MS. */
const FRESH_SECONDS = 60;
/** Moments of the primary that are remembered. */
const MOST_MOMENTS = 2 * (MOST_LAG_MS / PROBE_MS);

export interface Reads {
  /** Returns the database to read an organization's reports and lists from. */
  of(organizationId: string): Promise<CommonQueryMethods>;
  /** To be called before a change of what its lists show, by whichever data plane. */
  changing(organizationId: string): Promise<void>;
}

/** Reads without a replica, all from the primary. */
export const primaryReads = (primary: DatabasePool): Reads => ({
  of: () => Promise.resolve(primary),
  changing: () => Promise.resolve(),
});

export interface ReplicaReadsOptions {
  readonly primary: DatabasePool;
  /** Need not answer yet. */
  readonly replica: DatabasePool;
  /** Where the other data planes see which organizations changed something. */
  readonly redis: RedisStore;
  readonly log: Logger;
  /** Milliseconds that only grow. */
  readonly elapsed: () => number;
}

/** How much the primary had written at a moment. */
interface Moment {
  readonly at: number;
  readonly lsn: bigint;
}

const positionSchema = z.object({ ledger: z.string(), lsn: z.bigint() });
const primaryPosition = sql.type(positionSchema)`
  select id as ledger, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8 as lsn from ledger
`;
// An address that stands for all replicas may at times lead to the primary itself.
const replicaPosition = sql.type(positionSchema)`
  select id as ledger, pg_wal_lsn_diff(
    case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end, '0/0'
  )::int8 as lsn from ledger
`;

const writtenKey = (organizationId: string) => `gapura:changing:{${organizationId}}`;

export class ReplicaReads implements Reads {
  readonly #options: ReplicaReadsOptions;
  readonly #probe: Recurring;
  readonly #reader: CommonQueryMethods;
  /** Oldest first. */
  #moments: Moment[] = [];
  #ledger: string | null = null;
  /** The question that the replica has not answered yet; there is one at a time. */
  #asked: Promise<z.infer<typeof positionSchema>> | null = null;
  /** Functions that end the reads under way at the replica, for when it is given up; null: it is. */
  #running: Set<(reason: Error) => void> | null = null;
  #told: string | null = null;

  constructor(options: ReplicaReadsOptions) {
    this.#options = options;
    this.#probe = new Recurring(options.log, "read replica", PROBE_MS, () => this.look());
    this.#reader = this.#createReader();
    metrics.replicaUp.set(0);
  }

  start(): void {
    this.#probe.start();
  }

  stop(): Promise<void> {
    return this.#probe.stop();
  }

  async of(organizationId: string): Promise<CommonQueryMethods> {
    const { primary, redis } = this.#options;
    if (this.#running === null) return primary;
    const changed = await redis.exists(writtenKey(organizationId)).catch(() => 1);
    return changed === 0 ? this.#reader : primary;
  }

  /** Never fails: without Redis nothing is read from the replica by this data plane. */
  async changing(organizationId: string): Promise<void> {
    const { redis, log } = this.#options;
    await redis.set(writtenKey(organizationId), "1", "EX", FRESH_SECONDS).catch((error: unknown) => {
      log.warn(
        { err: error, organizationId },
        "other data planes may show lists of before a change for a while",
      );
    });
  }

  /** Asks primary and replica how far they are, and decides whether the replica is read. */
  async look(): Promise<void> {
    await this.#lookAtPrimary();
    try {
      const lagMs = await this.#lag();
      metrics.replicaLag.set(lagMs / 1000);
      if (lagMs > MOST_LAG_MS) this.#giveUp(new Error(`it is ${Math.round(lagMs / 1000)} s behind`));
      else this.#use();
    } catch (error) {
      this.#giveUp(error as Error);
    }
  }

  /** Notes how far the primary is. While it is away nothing is written that the replica could lack. */
  async #lookAtPrimary(): Promise<void> {
    const at = this.#options.elapsed();
    const found = await soon(this.#options.primary.one(primaryPosition)).catch(() => null);
    if (found === null) return;
    // Another primary may count from elsewhere.
    if (found.lsn < (this.#moments.at(-1)?.lsn ?? 0n)) this.#moments = [];
    this.#ledger = found.ledger;
    this.#moments = [...this.#moments, { at, lsn: found.lsn }].slice(-MOST_MOMENTS);
  }

  /** Returns by how many milliseconds the replica is behind what is known of the primary. @throws Error when it is away. */
  async #lag(): Promise<number> {
    this.#asked ??= this.#options.replica.one(replicaPosition).finally(() => (this.#asked = null));
    const { ledger, lsn } = await soon(this.#asked);
    if (ledger !== this.#ledger) throw new Error("DATABASE_READ_URL is another ledger than DATABASE_URL");
    const newest = this.#moments.at(-1);
    const reached = this.#moments.findLast((moment) => moment.lsn <= lsn);
    if (newest === undefined) throw new Error("the primary has not said how far it is");
    return reached === undefined ? Number.POSITIVE_INFINITY : newest.at - reached.at;
  }

  #use(): void {
    if (this.#running !== null) return;
    this.#running = new Set();
    this.#told = null;
    metrics.replicaUp.set(1);
    this.#options.log.info("reports and lists are read from DATABASE_READ_URL");
  }

  #giveUp(reason: Error): void {
    metrics.replicaUp.set(0);
    // Logged when it changes, not at every look.
    if (this.#running !== null || this.#told === null)
      this.#options.log.warn({ err: reason }, "DATABASE_READ_URL is not read: all is read from DATABASE_URL");
    this.#told = reason.message;
    const ends = this.#running ?? [];
    this.#running = null;
    for (const end of ends) end(reason);
  }

  #createReader(): CommonQueryMethods {
    const { primary } = this.#options;
    const methods = queryMethods.map((method) => {
      const read = (statement: never) => this.#read((database) => database[method](statement));
      return [method, read] as const;
    });
    return { ...primary, ...Object.fromEntries(methods) };
  }

  async #read<Result>(work: (database: CommonQueryMethods) => Promise<Result>): Promise<Result> {
    const { primary, replica } = this.#options;
    const running = this.#running;
    if (running === null) return await work(primary);
    // A promise of this read alone: one for all would keep the results of all reads until the replica is given up.
    const { promise: givenUp, reject: end } = Promise.withResolvers<never>();
    running.add(end);
    try {
      return await Promise.race([work(replica), givenUp]);
    } catch (error) {
      // The primary would take as long, and has more to do.
      if (refusesData(error) || (this.#running === running && error instanceof StatementTimeoutError))
        throw error;
      return await work(primary);
    } finally {
      running.delete(end);
    }
  }
}

/** @throws Error when it takes longer than ANSWERS_WITHIN_MS. */
const soon = <Result>(work: Promise<Result>): Promise<Result> =>
  inTime(ANSWERS_WITHIN_MS, work, () => new Error("it does not answer"));
