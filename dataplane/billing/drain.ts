/**
 * Moves charged rows from Redis into the ledger (design.md §5). One round for a shard: read entries, store and
 * charge them in one transaction, then tell Redis the new balances and delete exactly those entries. Any crash in
 * between is repaired by the next round, whoever runs it.
 */
import type { Redis } from "ioredis";
import { sql, type DatabasePool, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { metrics } from "../telemetry/metrics.ts";
import { type Account } from "./accounts.ts";
import { chargeRows, chargeUnreadable } from "./charge.ts";
import type { Operation, Shard } from "./shard.ts";
import { reached } from "./steps.ts";
import { decodeRow, type UsageRow } from "./usage-row.ts";

/** Bounded by what one script call takes as arguments: three for an entry, three for an account. */
const ENTRIES_AT_ONCE = 1_000;
/** First half of the advisory lock's key; the second is the shard. */
const LOCK = 7_104_202;
const SCRIPT_MS = 2_000;

/** An entry of the stream as far as Redis' books know it. */
export interface BookedEntry {
  readonly entryId: string;
  readonly organizationId: string;
  readonly cost: string;
}
/** A charged row on its way. */
export interface Entry extends BookedEntry {
  readonly row: UsageRow;
}
/** One that this release cannot read. */
interface UnreadableEntry extends BookedEntry {
  readonly text: string;
  readonly reason: unknown;
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
    const { readable, unreadable } = await this.#read(shard);
    const entries = [...readable, ...unreadable];
    if (entries.length === 0) return 0;
    reached("drain.read");
    const accounts = await this.#options.pool.transaction(async (transaction) => {
      const mine = await transaction.oneFirst(
        sql.type(z.object({ locked: z.boolean() }))`
          select pg_try_advisory_xact_lock(${LOCK}, ${index}) as locked
        `,
      );
      if (!mine) return null;
      return await charge(transaction, readable, unreadable);
    });
    if (accounts === null) return 0;
    reached("drain.stored");
    await shard.run(drainedOperation(accounts, entries), SCRIPT_MS);
    reached("drain.done");
    return entries.length;
  }

  async #read(shard: Shard) {
    const raw = await this.#options.redis.xrange(`${shard.tag}:usage`, "-", "+", "COUNT", ENTRIES_AT_ONCE);
    const readable: Entry[] = [];
    const unreadable: UnreadableEntry[] = [];
    for (const [entryId, [, organizationId = "", , amount = "", , text = ""]] of raw) {
      // An entry that no script of ours made moved no books.
      const booked = { entryId, organizationId, cost: /^\d{1,18}$/.test(amount) ? amount : "0" };
      try {
        readable.push({ ...booked, row: decodeRow(text) });
      } catch (reason) {
        unreadable.push({ ...booked, text, reason });
      }
    }
    return { readable, unreadable };
  }
}

async function charge(
  transaction: DatabaseTransactionConnection,
  readable: readonly Entry[],
  unreadable: readonly UnreadableEntry[],
): Promise<readonly Account[]> {
  const rows = readable.map(({ row }) => row);
  const accounts = [...(await chargeRows(transaction, rows))];
  for (const { organizationId, cost, text, reason } of unreadable) {
    accounts.push(
      ...(await chargeUnreadable(transaction, { organizationId, cost: BigInt(cost), text, reason })),
    );
  }
  return accounts;
}

/** Tells Redis that the ledger has these entries, and what the accounts are with them. */
export function drainedOperation(accounts: readonly Account[], entries: readonly BookedEntry[]): Operation {
  return [
    "drained",
    String(accounts.length),
    ...accounts.flatMap(({ organizationId, balance, version }) => [
      organizationId,
      balance.toString(),
      version.toString(),
    ]),
    ...entries.flatMap(({ entryId, organizationId, cost }) => [entryId, organizationId, cost]),
  ];
}
