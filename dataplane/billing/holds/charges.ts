/**
 * Charging what a request has cost: in Redis, or straight in the ledger while Redis is silent. Whatever way a charge went, it
 * is kept as long as a store could still lose it (kept-charges.ts). Every crash between two writes: docs/decisions/money.md.
 */
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import { ApiError } from "../../lib/api-error.ts";
import { inTime } from "../../lib/in-time.ts";
import { inBackground } from "../../lib/in-background.ts";
import { countCharge } from "../../telemetry/counts.ts";
import type { Account } from "../ledger/accounts.ts";
import { encodeRow } from "../ledger/charge-text.ts";
import { accountOperation } from "./account-loader.ts";
import type { Correction, HeldBill, ScopeArguments } from "./held-bill.ts";
import { KeptByShard } from "./kept-charges.ts";
import { BEFORE_ALL, type StreamPosition } from "./stream-position.ts";
import { LedgerWriter } from "./ledger-writer.ts";
import { operation, RedisSilent, SHARDS, shardOf, type MeterOperation } from "./shard.ts";
import { REDIS_MS, type Shards } from "./shards.ts";
import { reachedMoneyStep } from "../steps.ts";
import { allTokens, type UsageRow } from "../ledger/usage-row.ts";

/** The end of an answer is withheld at most this long while neither store takes its charge. */
const WITHHELD_MS = 10_000;

export interface ChargesOptions {
  readonly pool: DatabasePool;
  readonly log: Logger;
  /** How long and how much is kept; as in kept-charges.ts unless a test sets less. */
  readonly kept?: { readonly keptMs?: number; readonly most?: number };
}

export class Charges {
  readonly #options: ChargesOptions;
  readonly #shards: Shards;
  /** Called when the bill has ended. */
  readonly #onEnded: (bill: HeldBill) => void;
  readonly #writer: LedgerWriter;
  /** Bills by the rows that are charged without Redis. A batch item's hold has another id than its row. */
  readonly #aroundRedis = new WeakMap<UsageRow, HeldBill>();
  readonly kept: KeptByShard;

  constructor(options: ChargesOptions, shards: Shards, onEnded: (bill: HeldBill) => void) {
    const { pool, log, kept } = options;
    this.#options = options;
    this.#shards = shards;
    this.#onEnded = onEnded;
    this.kept = new KeptByShard(SHARDS, kept);
    this.#writer = new LedgerWriter({
      pool,
      log,
      settleInRedis: (row) => this.#chargeInRedis(row, this.#settleOperation(row), REDIS_MS),
      onSettled: (row) => this.#chargedInRedis(this.#aroundRedis.get(row), row, this.#settleOperation(row)),
      onStored: (rows, accounts) => this.stored(rows, accounts),
    });
  }

  /** Charges that neither store has taken yet. */
  get unstored(): number {
    return this.#writer.size;
  }

  /** Whether so many are unstored that nothing new may be admitted. */
  get full(): boolean {
    return this.#writer.full;
  }

  /** Resolves when the charge is durable. @throws ApiError when neither store takes it in time; it is made all the same. */
  async settle(bill: HeldBill, row: UsageRow): Promise<void> {
    const charge = settleOperation(row, bill);
    reachedMoneyStep("settle.sent");
    const deadline = performance.now() + REDIS_MS;
    for (let left = REDIS_MS; left > 0; left = deadline - performance.now()) {
      if (await this.#chargeInRedis(row, charge, left)) {
        this.#chargedInRedis(bill, row, charge);
        return reachedMoneyStep("settle.charged");
      }
      // A broken connection fails at once; it is tried again until the time is up.
      await new Promise((done) => setTimeout(done, 50));
    }
    await this.#chargeInLedger(bill, row);
    reachedMoneyStep("settle.charged");
  }

  /** Notes the bill of a row that is charged without Redis. */
  elsewhere(bill: HeldBill, row: UsageRow): void {
    this.#aroundRedis.set(row, bill);
  }

  /** For rows that the ledger charged past a silent Redis: as `ledgerCharged`, and keeps them in case it loses them again. */
  stored(rows: readonly UsageRow[], accounts: readonly Account[]): void {
    for (const row of rows) this.#keep(row, this.#settleOperation(row), BEFORE_ALL);
    this.ledgerCharged(rows, accounts);
  }

  /** For rows that the ledger charged by itself: gives their holds back under the new balances. Never fails. */
  ledgerCharged(rows: readonly UsageRow[], accounts: readonly Account[]): void {
    const operations = new Map<string, MeterOperation[]>();
    for (const account of accounts) {
      operations.set(account.organizationId, [accountOperation(account, "", false)]);
    }
    for (const row of rows) {
      const bill = this.#aroundRedis.get(row);
      if (bill !== undefined) this.#onEnded(bill);
      const { organizationId } = row;
      const release = operation(
        "release",
        organizationId,
        bill?.request.id ?? row.id,
        ...correctionOf(row, bill),
        "1",
        ...(bill?.scopeArguments ?? UNKNOWN_SCOPES),
      );
      operations.get(organizationId)?.push(release);
      // Rows that went around Redis are counted here, the others where they are settled.
      count(row);
    }
    for (const [organizationId, those] of operations) {
      const told = this.#shards.hand(organizationId, ...those).then(() => reachedMoneyStep("ledger.told"));
      inBackground(told, this.#options.log, "telling Redis what the ledger charged");
    }
  }

  /** @returns whether Redis took it. Not async, as there is one for each request. */
  #chargeInRedis({ organizationId }: UsageRow, charge: MeterOperation, timeoutMs: number): Promise<boolean> {
    return this.#shards
      .of(organizationId)
      .run(charge, timeoutMs)
      .then(
        () => true,
        (error: unknown) => {
          if (!(error instanceof RedisSilent))
            this.#options.log.error({ err: error }, "the meter script failed");
          return false;
        },
      );
  }

  #chargedInRedis(bill: HeldBill | undefined, row: UsageRow, charge: MeterOperation): void {
    this.#keep(row, charge, this.#shards.of(row.organizationId).newest);
    if (bill !== undefined) this.#onEnded(bill);
    count(row);
  }

  #keep({ organizationId }: UsageRow, charge: MeterOperation, position: StreamPosition): void {
    this.kept.of(shardOf(organizationId)).add(charge, performance.now(), position);
  }

  /** The operation for a row that is charged without Redis. */
  #settleOperation(row: UsageRow): MeterOperation {
    return settleOperation(row, this.#aroundRedis.get(row));
  }

  async #chargeInLedger(bill: HeldBill, row: UsageRow): Promise<void> {
    this.#options.log.warn(
      { requestId: bill.request.id },
      "Redis did not take a charge: writing it to the ledger",
    );
    this.elsewhere(bill, row);
    reachedMoneyStep("ledger.waiting");
    // Not to be retried: the charge is kept, and made as soon as a store is back.
    const unrecorded = () =>
      new ApiError("unavailable", "The end of this answer could not be recorded.", { retry: false });
    await inTime(WITHHELD_MS - REDIS_MS, this.#writer.store(row), unrecorded);
  }
}

/** For a request whose limits are not known here. */
const NO_CORRECTION: Correction = ["0", "0", "0"];

/** As after a change of limits: all scopes of the organization are read anew. */
const UNKNOWN_SCOPES: ScopeArguments = ["", ""];

const correctionOf = (row: UsageRow, bill: HeldBill | undefined): Correction =>
  bill?.correction(allTokens(row.tokens)) ?? NO_CORRECTION;

const settleOperation = (row: UsageRow, bill: HeldBill | undefined): MeterOperation =>
  operation(
    "settle",
    row.organizationId,
    row.id,
    row.cost.total.toString(),
    encodeRow(row),
    ...correctionOf(row, bill),
    ...(bill?.chargeScopes ?? UNKNOWN_SCOPES),
  );

function count({ organizationId, model, tokens, cost }: UsageRow): void {
  countCharge({
    organizationId,
    model,
    micros: Number(cost.total),
    tokens: {
      input: tokens.input,
      cache_read: tokens.cacheRead,
      cache_write: tokens.cacheWrite5m + tokens.cacheWrite1h,
      output: tokens.output,
    },
  });
}
