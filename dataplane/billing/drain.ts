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
import { BETWEEN_WORDS, operation, type Operation, type Shard } from "./shard.ts";
import { reached } from "./steps.ts";

/** Bounds a transaction, and what one script call takes as arguments: five for an account. */
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
    const entries = await readEntries(this.#options.redis, shard);
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
    const [outcome] = await shard.run(drainedOperation(accounts, entries), SCRIPT_MS);
    if (outcome === "broken") throw new Error(`an entry of ${shard.tag}:usage had been taken out`);
    reached("drain.done");
    return entries.length;
  }
}

/** The oldest entries of a shard. */
export async function readEntries(redis: Redis, { tag }: Shard): Promise<Entry[]> {
  const raw = await redis.xrange(`${tag}:usage`, "-", "+", "COUNT", ENTRIES_AT_ONCE);
  return raw.map(([entryId, fields]) => readEntry(entryId, packedOf(fields)));
}

/** An entry from before 2026-11-22 has a field for each of its words; a kept Redis may still hold some. */
function packedOf(fields: readonly string[]): string {
  const words = fields.filter((_, index) => index % 2 === 1);
  return words.length === 1 ? (words[0] ?? "") : words.join(BETWEEN_WORDS);
}

/** Takes an entry's text apart (`TAG:usage` in store/meter-shard.lua). */
function readEntry(entryId: string, packed: string): Entry {
  const first = packed.indexOf(BETWEEN_WORDS);
  const second = packed.indexOf(BETWEEN_WORDS, first + 1);
  const cost = packed.slice(first + 1, second);
  // An entry that no script of ours made moved no books.
  if (first < 0 || second < 0 || !/^\d{1,18}$/.test(cost))
    return { entryId, organizationId: "", cost: "0", text: packed };
  return { entryId, organizationId: packed.slice(0, first), cost, text: packed.slice(second + 1) };
}

/** Tells Redis that the ledger has these entries, its oldest, and what the accounts are with them. */
export function drainedOperation(accounts: readonly Account[], entries: readonly Entry[]): Operation {
  const words = [entries[0]?.entryId ?? "", entries.at(-1)?.entryId ?? "", String(entries.length)];
  words.push(String(accounts.length));
  for (const { organizationId, balance, version } of accounts)
    words.push(organizationId, balance.toString(), version.toString());
  const sums = new Map<string, bigint>();
  for (const { organizationId, cost } of entries)
    sums.set(organizationId, (sums.get(organizationId) ?? 0n) + BigInt(cost));
  for (const [organizationId, sum] of sums) if (sum !== 0n) words.push(organizationId, sum.toString());
  return operation("drained", ...words);
}
