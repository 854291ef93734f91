/**
 * Moves charged rows from Redis into the ledger (design.md §5). One round for a shard: read entries, store and
 * charge them in one transaction, then tell Redis the new balances and delete exactly those entries. Any crash in
 * between is repaired by the next round, whoever runs it.
 */
import type { Redis } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { metrics } from "../telemetry/metrics.ts";
import type { Account } from "./accounts.ts";
import { chargeAll } from "./charge.ts";
import { operation, type Operation, type Shard } from "./shard.ts";
import { reached } from "./steps.ts";

/** Bounded by what one script call takes as arguments: three for an entry, three for an account. */
const ENTRIES_AT_ONCE = 1_000;
/** First half of the advisory lock's key; the second is the shard. */
const LOCK = 7_104_202;
const SCRIPT_MS = 2_000;

/** An entry of the stream: a charged row on its way. */
export interface Entry {
  readonly entryId: string;
  readonly organizationId: string;
  readonly cost: string;
  /** The encoded row. */
  readonly text: string;
}

export interface DrainerOptions {
  readonly redis: Redis;
  readonly pool: DatabasePool;
  readonly shards: readonly Shard[];
}

export class Drainer {
  readonly #options: DrainerOptions;

  constructor(options: DrainerOptions) {
    this.#options = options;
  }

  /** Moves what is there, shard after shard; returns how many entries were moved. @throws when a store is away. */
  async drain(): Promise<number> {
    const { redis, shards } = this.#options;
    const lengths = await Promise.all(shards.map(({ tag }) => redis.xlen(`${tag}:usage`)));
    let moved = 0;
    for (const [index, shard] of shards.entries()) {
      metrics.usageLag.set({ shard: String(index) }, lengths[index] ?? 0);
      if (lengths[index] === 0) continue;
      for (let last = ENTRIES_AT_ONCE; last === ENTRIES_AT_ONCE; moved += last) {
        last = await this.#round(shard, index);
      }
    }
    return moved;
  }

  /** One round for one shard; 0 also when another pod is at it. */
  async #round(shard: Shard, index: number): Promise<number> {
    const entries = await this.#read(shard);
    if (entries.length === 0) return 0;
    reached("drain.read");
    const accounts = await this.#options.pool.transaction(async (transaction) => {
      const mine = await transaction.oneFirst(
        sql.type(z.object({ locked: z.boolean() }))`
          select pg_try_advisory_xact_lock(${LOCK}, ${index}) as locked
        `,
      );
      if (!mine) return null;
      return await chargeAll(
        transaction,
        entries.map(({ organizationId, cost, text }) => ({ organizationId, cost: BigInt(cost), text })),
      );
    });
    if (accounts === null) return 0;
    reached("drain.stored");
    await shard.run(drainedOperation(accounts, entries), SCRIPT_MS);
    reached("drain.done");
    return entries.length;
  }

  async #read(shard: Shard): Promise<Entry[]> {
    const raw = await this.#options.redis.xrange(`${shard.tag}:usage`, "-", "+", "COUNT", ENTRIES_AT_ONCE);
    return raw.map(([entryId, [, organizationId = "", , cost = "", , text = ""]]) => ({
      entryId,
      organizationId,
      // An entry that no script of ours made moved no books.
      cost: /^\d{1,18}$/.test(cost) ? cost : "0",
      text,
    }));
  }
}

/** Tells Redis that the ledger has these entries, and what the accounts are with them. */
export function drainedOperation(accounts: readonly Account[], entries: readonly Entry[]): Operation {
  return operation(
    "drained",
    String(accounts.length),
    ...accounts.flatMap(({ organizationId, balance, version }) => [
      organizationId,
      balance.toString(),
      version.toString(),
    ]),
    ...entries.flatMap(({ entryId, organizationId, cost }) => [entryId, organizationId, cost]),
  );
}
