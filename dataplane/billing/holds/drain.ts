/**
 * Moves charged rows from Redis into the ledger (design.md §5). One round for a shard: read entries, store and charge them in
 * one transaction, then write the new balances to Redis and delete exactly those entries. Any crash in between is repaired by
 * the next round, whoever runs it.
 */
import { ReplyError, type Redis } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { refusesData } from "../../store/postgres.ts";
import { isSlotMoving, serverOf, type RedisStore } from "../../store/redis-servers.ts";
import { metrics } from "../../telemetry/metrics.ts";
import type { Account } from "../ledger/accounts.ts";
import { chargeAll, type Charge } from "../ledger/charge.ts";
import {
  ForeignLedger,
  foreignText,
  isOtherServer,
  ledgerOf,
  type LedgerId,
  type LedgerWord,
} from "../ledger/ledger-identity.ts";
import { drainRows } from "../ledger/ledger.ts";
import { readScopeSpend, type ScopeOf, type ScopeSpend } from "./scope-spend.ts";
import { scopeNamed } from "../scopes.ts";
import {
  BETWEEN_RECORDS,
  BETWEEN_WORDS,
  operation,
  SCRIPT_MS,
  type MeterOperation,
  type Shard,
} from "./shard.ts";
import { reachedMoneyStep } from "../steps.ts";

/** Most entries read at once: each has the charges of one script call, one or two, or under load some dozens. */
const MOST_ENTRIES_READ = 250;
/** Charges that are read at once, about. */
const CHARGES_READ = 4_000;
/** Bounds a transaction, and what one script call takes as arguments: each charge may name another account and other scopes. */
const WORDS_AT_ONCE = 5_000;
const WORDS_OF_ACCOUNT = 5;
const WORDS_OF_SCOPE = 6;
/** First half of the advisory lock's key; the second is the shard. */
const LOCK = 7_104_202;

/** An entry of the stream: charges on their way. */
export interface Entry {
  readonly entryId: string;
  readonly charges: readonly WaitingCharge[];
}

interface WaitingCharge extends Charge {
  /** Names of the scopes that it counts in (scopes.ts). */
  readonly scopes: readonly string[];
}

/** Somebody took an entry out of a stream. */
class EntryMissing extends Error {
  override readonly name = "EntryMissing";
}

/** Postgres failed, or did not answer. */
export class LedgerAway extends Error {
  override readonly name = "LedgerAway";
}

export interface DrainerOptions {
  readonly redis: RedisStore;
  readonly pool: DatabasePool;
  /** The ledger in `pool`. */
  readonly ledger: LedgerId;
  /** Word of the server that Redis was compared with. null: none yet, so nothing may be charged. */
  readonly word: () => LedgerWord | null;
  /** Called when another server answers, or Redis knows another one. */
  readonly onOther: () => void;
  readonly shards: readonly Shard[];
}

export class Drainer {
  readonly #options: DrainerOptions;
  /** `performance.now()` since which a round waits for Postgres. */
  #askedAt: number | null = null;

  constructor(options: DrainerOptions) {
    this.#options = options;
  }

  /** Milliseconds that the present round has waited for Postgres. `now`: `performance.now()`. */
  waitsFor(now: number): number {
    return this.#askedAt === null ? 0 : now - this.#askedAt;
  }

  /**
   * Moves waiting charges, shard after shard; returns how many were moved. `isMine`: whether this pod is to look after a shard,
   * asked before each. @throws when a store is away.
   */
  async drain(isMine: (shard: number) => boolean = () => true): Promise<number> {
    const { redis, shards } = this.#options;
    const mine = shards.flatMap((shard, index) => (isMine(index) ? [{ shard, index }] : []));
    const lengths = await Promise.allSettled(mine.map(({ shard }) => redis.xlen(`${shard.tag}:usage`)));
    let moved = 0;
    let failure: unknown = null;
    const away = new Set<Redis | null>();
    for (const [at, { shard, index }] of mine.entries()) {
      const server = serverOf(redis, `${shard.tag}:usage`);
      try {
        const length = lengths[at];
        if (length === undefined || !isMine(index) || away.has(server)) continue;
        if (length.status === "rejected") throw length.reason;
        moved += await this.#shard(index, length.value);
      } catch (error) {
        if (error instanceof LedgerAway) throw error;
        // A fault in one shard's keys must not hold up the others; a server that is away holds up all its shards.
        if (!(error instanceof ReplyError || error instanceof EntryMissing || isSlotMoving(error)))
          away.add(server);
        failure ??= error;
      }
    }
    if (failure !== null) throw failure;
    return moved;
  }

  async #shard(index: number, length: number): Promise<number> {
    const { redis, shards } = this.#options;
    const shard = shards[index];
    if (shard === undefined) return 0;
    const waiting = length === 0 ? 0 : Number(await redis.get(`${shard.tag}:waiting`));
    metrics.usageLag.set({ shard: String(index) }, waiting);
    if (length === 0) return 0;
    // As many entries as hold `CHARGES_READ`, by what one holds on average.
    const most = Math.ceil(Math.min(MOST_ENTRIES_READ, Math.max(1, (CHARGES_READ * length) / waiting)));
    let moved = 0;
    // What comes in meanwhile is left to the next round: one busy organization must not keep the other shards waiting.
    for (let left = length; left > 0;) {
      const entries = await this.#readOurs(shard, most);
      for (const some of inRounds(entries)) {
        const count = await this.#round(shard, index, some);
        if (count === 0) return moved;
        moved += count;
      }
      if (entries.length < most) return moved;
      left -= entries.length;
    }
    return moved;
  }

  /** The oldest entries of a shard. @throws ForeignLedger when they are not ours. */
  async #readOurs(shard: Shard, most: number): Promise<Entry[]> {
    const { redis, ledger } = this.#options;
    // The epoch is read before and after the entries, and not with them in a transaction, which a Redis whose memory is full
    // refuses. No epoch comes twice: where both are the same, the entries are of it.
    const readEpoch = () => redis.get(`${shard.tag}:epoch`);
    const [before, entries, after] = await Promise.all([
      readEpoch(),
      readEntries(redis, shard, most),
      readEpoch(),
    ]);
    const foreign = [before, after].map(ledgerOf).find((owner) => owner !== null && owner !== ledger);
    if (foreign !== undefined) throw new ForeignLedger(foreignText(foreign ?? "", ledger));
    return before === after ? entries : [];
  }

  /** One round for one shard; 0 when another pod is draining it. */
  async #round(shard: Shard, index: number, entries: readonly Entry[]): Promise<number> {
    const charges = entries.flatMap((entry) => entry.charges);
    reachedMoneyStep("drain.read");
    this.#askedAt = performance.now();
    const accounts = await this.#store(index, charges)
      .catch((error: unknown) => {
        if (isOtherServer(error)) this.#options.onOther();
        throw new LedgerAway("the ledger did not take charges", { cause: error });
      })
      .finally(() => (this.#askedAt = null));
    if (accounts === null) return 0;
    reachedMoneyStep("drain.stored");
    const spends = await readScopeSpend(this.#options.pool, scopesOf(entries)).catch((error: unknown) => {
      throw new LedgerAway("the ledger did not tell what scopes spent", { cause: error });
    });
    const [outcome] = await shard.run(drainedOperation(accounts, entries, spends), SCRIPT_MS);
    if (outcome === "broken") throw new EntryMissing(`an entry of ${shard.tag}:usage had been taken out`);
    if (outcome === "other") this.#options.onOther();
    if (outcome === "moved" || outcome === "other") return 0;
    reachedMoneyStep("drain.done");
    return charges.length;
  }

  /** null: another pod is draining this shard. */
  async #store(shard: number, charges: readonly Charge[]): Promise<readonly Account[] | null> {
    const { pool } = this.#options;
    const word = this.#options.word();
    if (word === null) throw new Error("the ledger has not been compared with Redis yet");
    try {
      const texts = charges.map(({ text }) => text);
      const accounts = await drainRows(pool, word, LOCK, shard, texts);
      return accounts.length === 0 ? null : accounts;
    } catch (error) {
      if (!refusesData(error)) throw error;
    }
    return await pool.transaction(async (transaction) => {
      const mine = await transaction.oneFirst(
        sql.type(z.object({ locked: z.boolean() }))`
          select pg_try_advisory_xact_lock(${LOCK}, ${shard}) and ledger_word() = ${word} as locked
        `,
      );
      return mine ? await chargeAll(transaction, charges) : null;
    });
  }
}

/** The oldest entries of a shard. */
export async function readEntries(
  redis: RedisStore,
  { tag }: Shard,
  most = MOST_ENTRIES_READ,
): Promise<Entry[]> {
  const raw = await redis.xrange(`${tag}:usage`, "-", "+", "COUNT", most);
  return raw.map(([entryId, fields]) => ({ entryId, charges: readCharges(fields) }));
}

/** Takes an entry apart (`TAG:usage` in store/meter-shard.lua). */
function readCharges(fields: readonly string[]): WaitingCharge[] {
  return (fields[1] ?? "").split(BETWEEN_RECORDS).map(readCharge);
}

function readCharge(packed: string): WaitingCharge {
  const first = packed.indexOf(BETWEEN_WORDS);
  const second = packed.indexOf(BETWEEN_WORDS, first + 1);
  const cost = packed.slice(first + 1, second);
  // An entry that none of our scripts wrote is part of no balance.
  if (first < 0 || second < 0 || !/^\d{1,18}$/.test(cost))
    return { organizationId: "", cost: 0n, text: packed, scopes: [] };
  const third = packed.indexOf(BETWEEN_WORDS, second + 1);
  const text = packed.slice(second + 1, third < 0 ? undefined : third);
  const scopes = third < 0 ? "" : packed.slice(third + 1);
  const organizationId = packed.slice(0, first);
  return { organizationId, cost: BigInt(cost), text, scopes: scopes === "" ? [] : scopes.split(" ") };
}

/** The scopes that charges count in, each once. */
export function scopesOf(entries: readonly Entry[]): ScopeOf[] {
  const found = new Map<string, ScopeOf>();
  for (const { charges } of entries)
    for (const { organizationId, scopes } of charges)
      for (const name of scopes) {
        const scope = found.has(name) ? null : scopeNamed(name);
        if (scope !== null) found.set(name, { organizationId, scope });
      }
  return [...found.values()];
}

/** Groups neighbours, as many as one transaction takes. */
function* inRounds(entries: readonly Entry[]): Generator<readonly Entry[]> {
  let round: Entry[] = [];
  let words = 0;
  for (const entry of entries) {
    const more = entry.charges.reduce(
      (sum, { scopes }) => sum + WORDS_OF_ACCOUNT + WORDS_OF_SCOPE * scopes.length,
      0,
    );
    if (round.length > 0 && words + more > WORDS_AT_ONCE) {
      yield round;
      round = [];
      words = 0;
    }
    round.push(entry);
    words += more;
  }
  if (round.length > 0) yield round;
}

/** Reports to Redis that the ledger has these entries, its oldest, with the accounts and spends of scopes that include them. */
export function drainedOperation(
  accounts: readonly Account[],
  entries: readonly Entry[],
  spends: readonly ScopeSpend[],
): MeterOperation {
  const charges = entries.flatMap((entry) => entry.charges);
  const ends = [entries[0]?.entryId ?? "", entries.at(-1)?.entryId ?? ""];
  const words = [
    accounts[0]?.ledger ?? "",
    ...ends,
    String(entries.length),
    String(charges.length),
    String(accounts.length),
    String(spends.length),
  ];
  for (const { organizationId, balance, version } of accounts)
    words.push(organizationId, balance.toString(), version.toString());
  for (const { organizationId, name, spent, version } of spends)
    words.push(organizationId, name, (-spent).toString(), version.toString());
  const sums = new Map<string, bigint>();
  for (const { organizationId, cost, scopes } of charges)
    for (const name of [organizationId, ...scopes]) sums.set(name, (sums.get(name) ?? 0n) + cost);
  for (const [name, sum] of sums) if (sum !== 0n) words.push(name, sum.toString());
  return operation("drained", ...words);
}
