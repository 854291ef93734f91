/**
 * Stores records of requests (rule 14.1), off the hot path: records wait in memory for a moment and are stored together.
 * No request waits for them; records that the store does not take in time, or that are too many, are counted and dropped.
 */
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import { sql, type DatabasePool } from "slonik";
import type { Clock } from "../lib/clock.ts";
import { Recurring } from "../lib/recurring.ts";
import { TokenBucket } from "../lib/token-bucket.ts";
import { within } from "../lib/within.ts";
import { refusesData } from "../store/postgres.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { RequestRecord, RequestRecords } from "../telemetry/request-record.ts";
import { storedForm } from "./stored-form.ts";
import { WaitingRows, type RowPack } from "./waiting-rows.ts";

/** How often the waiting records are stored. */
const STORE_MS = 500;
const PARTITIONS_MS = 60_000;
/** Records that wait for the store at most: some ten seconds of a busy process, and about 10 MB. */
const MAX_WAITING = 20_000;
/** Beyond them a quarter more of organizations that have few, less than an eighth: one that has many must not drop everybody's. */
const ROOM_FOR_FEW = 1.25;
const FEW = 1 / 8;
/**
 * Requests that cost a caller nothing (a refusal, a list, a wrong key) must not fill the disk: this many a second are stored
 * of each organization, and of all callers without a key together. Refused inference is counted by itself: a program that
 * reads reports all the time would take the places of what a person looks for.
 */
const FREE = { perSecond: 5, burst: 1_000 };
/**
 * The same for requests that called an upstream and got nothing: an organization with credit may make any number of these. In an
 * hour of an upstream's outage tens of thousands are found by their ids; one that keeps its rate up stores two gigabytes in the
 * usual seven days, a sample of what it sends.
 */
const UNSERVED = { perSecond: 2, burst: 20_000 };
const KEPT_ORGANIZATIONS = 10_000;
/** How long the last records may take when the process stops. */
const LAST_MS = 2_000;

export interface RecorderOptions {
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
  /** Older records are deleted; 0: none are stored, and earlier ones are deleted. */
  readonly retentionMs: number;
  readonly maxWaiting?: number;
}

export class RequestRecorder implements RequestRecords {
  readonly #options: RecorderOptions;
  readonly #maxWaiting: number;
  readonly #loops: readonly Recurring[];
  readonly #free = new KeptOf(FREE);
  readonly #refused = new KeptOf(FREE);
  readonly #unserved = new KeptOf(UNSERVED);
  readonly #debug: boolean;
  readonly #waiting = new WaitingRows();
  /** Whose the waiting ones are, in their order, and how many are of each organization. */
  readonly #owners: string[] = [];
  readonly #counts = new Map<string, number>();

  constructor(options: RecorderOptions) {
    const { log, maxWaiting = MAX_WAITING } = options;
    this.#options = options;
    this.#maxWaiting = maxWaiting;
    this.#debug = log.isLevelEnabled("debug");
    this.#loops = [
      new Recurring(log, "request partitions", PARTITIONS_MS, () => this.keepPartitions()),
      new Recurring(log, "request records", STORE_MS, () => this.store()),
    ];
  }

  start(): void {
    for (const loop of this.#loops) loop.start();
  }

  async stop(): Promise<void> {
    const stored = within(LAST_MS, async () => {
      await Promise.all(this.#loops.map((loop) => loop.stop()));
      await this.store();
    });
    const fault = await stored.then(
      (isDone) => (isDone ? null : new Error(`Postgres did not take them in ${LAST_MS} ms`)),
      (error: unknown) => error,
    );
    if (fault !== null)
      this.#options.log.warn({ err: fault, records: this.#waiting.rows }, "the last records are lost");
  }

  add(record: RequestRecord): void {
    if (this.#debug) this.#options.log.debug(shownRecord(record), "request record");
    if (this.#options.retentionMs === 0) return;
    const owner = record.organizationId ?? "";
    const count = this.#counts.get(owner) ?? 0;
    const room = count < this.#maxWaiting * FEW ? this.#maxWaiting * ROOM_FOR_FEW : this.#maxWaiting;
    if (this.#waiting.rows >= room) return dropped("full", 1);
    if (!this.#mayKeep(record)) return dropped("rate", 1);
    this.#waiting.add(JSON.stringify(storedForm(record)));
    this.#owners.push(owner);
    this.#counts.set(owner, count + 1);
  }

  /** Stores all waiting records. @throws Error when the store is away; records that could not be stored go on waiting. */
  async store(): Promise<void> {
    for (let pack = this.#waiting.first(); pack !== null; pack = this.#waiting.first()) {
      const { rows } = pack;
      await this.#insert(pack, 0, rows);
      this.#waiting.stored();
      this.#uncount(rows);
    }
  }

  /** Takes note that so many of the oldest records wait no more. */
  #uncount(rows: number): void {
    for (const owner of this.#owners.splice(0, rows)) {
      const left = (this.#counts.get(owner) ?? 1) - 1;
      if (left > 0) this.#counts.set(owner, left);
      else this.#counts.delete(owner);
    }
  }

  /** Makes the partitions of these days, and drops those that are too old. */
  async keepPartitions(): Promise<void> {
    const { pool, clock, retentionMs } = this.#options;
    const oldest =
      retentionMs === 0
        ? sql.fragment`'infinity'::timestamptz`
        : sql.fragment`to_timestamp(${(clock.now() - retentionMs) / 1000})`;
    await pool.query(sql.unsafe`select make_request_partitions(${oldest})`);
    await pool.query(sql.unsafe`select drop_request_partitions(${oldest})`);
  }

  #mayKeep({ organizationId, dialect, tries, inputTokens, outputTokens, micros }: RequestRecord): boolean {
    if (tries.length === 0) return (dialect === null ? this.#free : this.#refused).mayKeep(organizationId);
    const isServed = micros > 0n || inputTokens > 0 || outputTokens > 0;
    return isServed || this.#unserved.mayKeep(organizationId);
  }

  /** Stores some rows of a pack. Where one is refused (its day has no partition any more), each half is tried by itself. */
  async #insert(pack: RowPack, from: number, to: number): Promise<void> {
    try {
      await this.#options.pool.query(
        sql.unsafe`select store_request_records(${sql.binary(pack.jsonb(from, to))}::jsonb)`,
      );
    } catch (error) {
      if (!refusesData(error)) throw error;
      if (to - from === 1) return dropped("refused", 1);
      const middle = Math.ceil((from + to) / 2);
      await this.#insert(pack, from, middle);
      await this.#insert(pack, middle, to);
    }
  }
}

/** Limits the records of a kind that are stored of each organization, and of all callers without a key together. */
class KeptOf {
  readonly #buckets = new LRUCache<string, TokenBucket>({ max: KEPT_ORGANIZATIONS });
  readonly #rate: typeof FREE;

  constructor(rate: typeof FREE) {
    this.#rate = rate;
  }

  mayKeep(organizationId: string | null): boolean {
    const { perSecond, burst } = this.#rate;
    const now = performance.now();
    const of = organizationId ?? "";
    let bucket = this.#buckets.get(of);
    if (bucket === undefined) {
      bucket = new TokenBucket(perSecond, burst, now);
      this.#buckets.set(of, bucket);
    }
    return bucket.take(1, now) === 0;
  }
}

/** Returns what `why` would show, for the log: JSON has no bigint. */
const shownRecord = ({ id, micros, ...record }: RequestRecord): object => ({
  request_id: id,
  ...record,
  micros: micros.toString(),
});

const dropped = (reason: "full" | "rate" | "refused", count: number): void =>
  metrics.recordsDropped.inc({ reason }, count);
