/**
 * Compares Redis with the ledger whenever another Postgres answers than the one that Redis was compared with: after a failover,
 * a restore or a restart, which may have lost transactions that Redis and the data planes know of. Until that is done nothing
 * moves between Redis and the ledger, so that what Redis knows stays as it is: `available` is never too high. Then what the
 * ledger lost is charged again: by its sum from Redis, and by its rows from the data planes that have them
 * (docs/decisions/money.md).
 *
 * A process that has served before does so by itself. One that starts and finds Redis ahead of the ledger cannot decide:
 * somebody may have restored an old backup on purpose. It reports that, charges nothing and waits: for another data plane that
 * knows, or for `main.ts adopt`.
 */
import type { RedisStore } from "../../store/redis-servers.ts";
import type { Logger } from "pino";
import type { DatabasePool, DatabaseTransactionConnection } from "slonik";
import { sql } from "slonik";
import { z } from "zod";
import { metrics } from "../../telemetry/metrics.ts";
import type { Charge } from "../ledger/charge.ts";
import { creditsText } from "../credits.ts";
import {
  foreignText,
  ledgerOf,
  readLedgerWord,
  type LedgerId,
  type LedgerWord,
} from "../ledger/ledger-identity.ts";
import { recordLosses, restoreCharges, type KnownAccount, type Loss } from "../ledger/ledger-losses.ts";
import { scanOrganizations } from "./scan-organizations.ts";
import { operation, SCRIPT_MS, shardOf, type MeterOperation, type Shard } from "./shard.ts";

/** First half of the advisory lock's key; the second is the shard. */
const LOCK = 7_104_203;
const ACCOUNTS_AT_ONCE = 500;
const CHARGES_AT_ONCE = 500;

/** What to do with a Redis that is ahead of the ledger. */
export type Ahead = "refuse" | "charge";

export interface LedgerGuardOptions {
  readonly redis: RedisStore;
  readonly pool: DatabasePool;
  readonly log: Logger;
  /** The ledger in `pool`. */
  readonly ledger: LedgerId;
  readonly shards: readonly Shard[];
  /** Charges of this process that the ledger may have lost. */
  readonly takeDoubtful: () => readonly MeterOperation[];
  /** Called when another server answers than before. */
  readonly onOther: () => void;
  /** What to do in a process that has not served yet. */
  readonly atFirst: Ahead;
}

export class LedgerGuard {
  readonly #options: LedgerGuardOptions;
  #word: LedgerWord | null = null;
  #fault: string | null = "the ledger has not been looked at yet";
  #looking: Promise<readonly Loss[]> | null = null;

  constructor(options: LedgerGuardOptions) {
    this.#options = options;
  }

  /** The server that Redis was compared with; null: none. */
  get word(): LedgerWord | null {
    return this.#word;
  }

  /** Why nothing may be charged against this ledger. */
  get fault(): string | null {
    return this.#fault;
  }

  /**
   * Checks which server answers, once for all callers of the same moment, and compares when it is another one. Returns what the
   * ledger was found to have lost. @throws when a store is away.
   */
  look(): Promise<readonly Loss[]> {
    this.#looking ??= this.#look().finally(() => (this.#looking = null));
    return this.#looking;
  }

  async #look(): Promise<readonly Loss[]> {
    const { pool, ledger, onOther, atFirst } = this.#options;
    const word = await readLedgerWord(pool);
    if (!word.startsWith(`${ledger}.`)) {
      this.#fault = `DATABASE_URL is another ledger than when this process was started (${ledger})`;
      return [];
    }
    const foreign = await this.#foreign();
    if (foreign !== null) {
      this.#fault = foreignText(foreign, ledger);
      return [];
    }
    const isOther = word !== this.#word;
    const ahead = this.#word === null ? atFirst : "charge";
    const losses = await this.#compareAll(word, ahead);
    if (losses.length > 0 && ahead === "refuse") {
      this.#fault =
        `Redis knows charges of ${losses.length} organizations that this Postgres has not: it was restored, or lost ` +
        "its last transactions. Nothing is charged until `main.ts adopt` has charged them again";
      return losses;
    }
    if (isOther && this.#word !== null) onOther();
    this.#word = word;
    this.#fault = null;
    await this.#restore();
    return losses;
  }

  /** The other ledger that this Redis was compared with; null: none. */
  async #foreign(): Promise<LedgerId | null> {
    const { ledger, redis, shards } = this.#options;
    const words = await Promise.all(shards.map(({ tag }) => redis.get(`${tag}:ledger`)));
    return words.map(ledgerOf).find((other) => other !== null && other !== ledger) ?? null;
  }

  async #compareAll(word: LedgerWord, ahead: Ahead): Promise<readonly Loss[]> {
    const { redis, shards } = this.#options;
    const known = await Promise.all(shards.map(({ tag }) => redis.get(`${tag}:ledger`)));
    if (known.every((other) => other === word)) return [];
    const names = await scanOrganizations(redis);
    const losses: Loss[] = [];
    for (const [index, shard] of shards.entries()) {
      const before = known[index] ?? null;
      if (before === word) continue;
      const found = await this.#compare(shard, index, names[index] ?? [], word, ahead);
      losses.push(...found);
      if (found.length > 0 && ahead === "refuse") continue;
      const [reply] = await shard.run(operation("adopt", before ?? "", word), SCRIPT_MS);
      if (reply !== "adopted") throw new Error("another data plane compared Redis with another Postgres");
      await readScopesAgain(shard, names[index] ?? []);
    }
    return losses;
  }

  async #compare(
    { tag }: Shard,
    index: number,
    organizationIds: readonly string[],
    word: LedgerWord,
    ahead: Ahead,
  ): Promise<readonly Loss[]> {
    const { redis, pool, log } = this.#options;
    const losses: Loss[] = [];
    for (let at = 0; at < organizationIds.length; at += ACCOUNTS_AT_ONCE) {
      const known: KnownAccount[] = [];
      const some = organizationIds.slice(at, at + ACCOUNTS_AT_ONCE);
      const books = await Promise.all(some.map((id) => redis.hmget(`${tag}:o:${id}`, "base", "version")));
      for (const [place, [base, version]] of books.entries()) {
        if (typeof base !== "string" || typeof version !== "string") continue;
        known.push({ organizationId: some[place] ?? "", base: BigInt(base), version: BigInt(version) });
      }
      // Redis was read before the ledger: a ledger that has lost nothing cannot be behind what Redis knew then.
      losses.push(
        ...(await pool.transaction(async (transaction) => {
          await beOnly(transaction, index, word);
          return await recordLosses(transaction, known, ahead === "charge");
        })),
      );
    }
    for (const { organizationId, lost } of ahead === "charge" ? losses : []) {
      metrics.ledgerLost.inc(Number(lost) / 1e6);
      log.error(
        { organizationId, credits: creditsText(lost) },
        "the ledger lost charges: charged by their sum",
      );
    }
    return losses;
  }

  /** Stores rows again that the ledger may have lost. */
  async #restore(): Promise<void> {
    const { pool, log, takeDoubtful, onOther } = this.#options;
    const charges = takeDoubtful().map(chargeOf);
    try {
      for (let at = 0; at < charges.length; at += CHARGES_AT_ONCE) {
        const some = charges.slice(at, at + CHARGES_AT_ONCE);
        const restored = await pool.transaction((transaction) => restoreCharges(transaction, some));
        const organizations = new Set(some.map(({ organizationId }) => organizationId));
        await Promise.all(
          [...Map.groupBy(organizations, shardOf)].map(async ([index, ids]) => {
            const shard = this.#options.shards[index];
            if (shard !== undefined) await readScopesAgain(shard, ids);
          }),
        );
        if (restored > 0n)
          log.warn({ credits: creditsText(restored) }, "made charges again that the ledger lost");
      }
    } catch (error) {
      // The charges are doubtful again.
      onOther();
      throw error;
    }
  }
}

/** Makes Redis read spends again: they may be less now, or more. */
async function readScopesAgain(shard: Shard, organizationIds: readonly string[]): Promise<void> {
  for (let at = 0; at < organizationIds.length; at += ACCOUNTS_AT_ONCE) {
    const some = organizationIds.slice(at, at + ACCOUNTS_AT_ONCE);
    await Promise.all(some.map((id) => shard.run(operation("reread", id), SCRIPT_MS)));
  }
}

/** Lets one pod in at a time, and only on the server of `word`. */
async function beOnly(transaction: DatabaseTransactionConnection, shard: number, word: LedgerWord) {
  const is = await transaction.oneFirst(
    sql.type(z.object({ word: z.string() }))`
      select ledger_word() as word from (select pg_advisory_xact_lock(${LOCK}, ${shard})) locked
    `,
  );
  if (is !== word) throw new Error("another Postgres answers than a moment ago");
}

/** The charge of a `settle` (shard.ts). */
function chargeOf(settle: MeterOperation): Charge {
  const [, , organizationId = "", , cost = "0", text = ""] = settle.split("\0");
  return { organizationId, cost: BigInt(cost), text };
}
