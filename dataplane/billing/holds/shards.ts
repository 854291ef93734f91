/** The sixteen shards of the meter, and a backlog of operations for which no caller waits. */
import { metrics } from "../../telemetry/metrics.ts";
import { meterUnavailable } from "./rate-limits.ts";
import { SHARDS, Shard, shardOf, type MeterOperation, type Reply, type ShardOptions } from "./shard.ts";

/** Redis has this long for one operation; then a charge goes straight to the ledger. */
export const REDIS_MS = 1_000;
/** Heartbeats, or questions of one organization, that a shard gets at once: a script call of some milliseconds. */
export const ASKED_AT_ONCE = 128;
/** How often and how long apart Redis is asked again for what the next drain will show: four drains a second. */
export const UNSURE_LOOKS = 10;
export const UNSURE_LOOK_MS = 100;
/**
 * Most operations without a waiting caller that are kept until Redis takes them. Further ones are dropped and counted, as
 * upkeep.ts repairs them: the sweeper gives back a hold that nobody keeps alive, and the look for changed accounts writes every
 * newer balance to Redis.
 */
const MOST_OWED = 20_000;

export interface ShardsOptions extends Omit<ShardOptions, "index"> {
  /** An operation of the backlog may have released credit. */
  readonly onTaken: (organizationId: string) => void;
  /** `MOST_OWED` unless a test has less patience. */
  readonly mostOwed?: number;
}

/** Sent or dropped as a whole: a hold must not be released before Redis has the balance that includes its charge. */
interface Debt {
  readonly organizationId: string;
  readonly operations: readonly MeterOperation[];
}

export class Shards {
  readonly all: readonly Shard[];
  readonly #onTaken: (organizationId: string) => void;
  readonly #mostOwed: number;
  #debts: Debt[] = [];
  /** Operations in `#debts`. */
  #owed = 0;

  constructor({ onTaken, mostOwed = MOST_OWED, ...options }: ShardsOptions) {
    this.#onTaken = onTaken;
    this.#mostOwed = mostOwed;
    this.all = Array.from({ length: SHARDS }, (_, index) => new Shard({ ...options, index }));
  }

  of(organizationId: string): Shard {
    const shard = this.all[shardOf(organizationId)];
    if (shard === undefined) throw new RangeError("no such shard");
    return shard;
  }

  /** @throws ApiError 503 when Redis does not answer. */
  async run(organizationId: string, operation: MeterOperation): Promise<Reply> {
    try {
      return await this.of(organizationId).run(operation, REDIS_MS);
    } catch (error) {
      throw meterUnavailable(error);
    }
  }

  /** Resolves when Redis has all operations, or when they are in the backlog or dropped. Never fails. */
  async hand(organizationId: string, ...operations: readonly MeterOperation[]): Promise<void> {
    const shard = this.of(organizationId);
    try {
      // Put in line at once, so that they keep their order.
      await Promise.all(operations.map((operation) => shard.run(operation, REDIS_MS)));
      this.#onTaken(organizationId);
    } catch {
      this.#owe({ organizationId, operations });
    }
  }

  /** Hands over again what Redis did not take. Never fails. */
  async retryPending(): Promise<void> {
    const debts = this.#debts;
    this.#debts = [];
    this.#count(-this.#owed);
    await Promise.all(
      debts.map(({ organizationId, operations }) => this.hand(organizationId, ...operations)),
    );
  }

  #owe(debt: Debt): void {
    const { length } = debt.operations;
    if (this.#owed + length > this.#mostOwed) {
      metrics.pendingDropped.inc(length);
      return;
    }
    this.#debts.push(debt);
    this.#count(length);
  }

  #count(difference: number): void {
    this.#owed += difference;
    metrics.pending.set(this.#owed);
  }
}
