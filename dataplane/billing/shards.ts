/** The sixteen shards of the meter, and operations that are owed to them: nobody waits for those. */
import { meterUnavailable } from "./rate-limits.ts";
import { SHARDS, Shard, shardOf, type Operation, type Reply, type ShardOptions } from "./shard.ts";

/** Redis has this long for one operation; then a charge goes straight to the ledger. */
export const REDIS_MS = 1_000;
/** Operations that nobody waits for, kept until Redis takes them. */
const MOST_OWED = 20_000;

export interface ShardsOptions extends Omit<ShardOptions, "index"> {
  /** An operation that nobody waited for may have given credit back. */
  readonly onTaken: (organizationId: string) => void;
}

interface Debt {
  readonly organizationId: string;
  readonly operation: Operation;
}

export class Shards {
  readonly all: readonly Shard[];
  readonly #onTaken: (organizationId: string) => void;
  #owed: Debt[] = [];

  constructor({ onTaken, ...options }: ShardsOptions) {
    this.#onTaken = onTaken;
    this.all = Array.from({ length: SHARDS }, (_, index) => new Shard({ ...options, index }));
  }

  of(organizationId: string): Shard {
    const shard = this.all[shardOf(organizationId)];
    if (shard === undefined) throw new RangeError("no such shard");
    return shard;
  }

  /** @throws ApiError 503 when Redis does not answer. */
  async run(organizationId: string, operation: Operation): Promise<Reply> {
    try {
      return await this.of(organizationId).run(operation, REDIS_MS);
    } catch (error) {
      throw meterUnavailable(error);
    }
  }

  /** Resolves when Redis has it, or when it is owed. Never fails. */
  async hand(organizationId: string, operation: Operation): Promise<void> {
    try {
      await this.of(organizationId).run(operation, REDIS_MS);
      this.#onTaken(organizationId);
    } catch {
      if (this.#owed.length < MOST_OWED) this.#owed.push({ organizationId, operation });
    }
  }

  /** Hands over again what Redis did not take. Never fails. */
  async payOwed(): Promise<void> {
    const owed = this.#owed;
    this.#owed = [];
    await Promise.all(owed.map(({ organizationId, operation }) => this.hand(organizationId, operation)));
  }
}
