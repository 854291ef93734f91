/**
 * The way past a silent Redis: rows that Redis did not take go straight to the ledger, or into Redis after all when that is
 * back first. A row stays here, in memory, until one of the two has it (design.md §5).
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { DatabasePool } from "slonik";
import type { Logger } from "pino";
import { type Account } from "../ledger/accounts.ts";
import { chargeRows } from "../ledger/charge.ts";
import { reachedMoneyStep } from "../steps.ts";
import type { UsageRow } from "../ledger/usage-row.ts";
import { inBackground } from "../../lib/in-background.ts";

const ROWS_AT_ONCE = 500;
/** How long a transaction may take before Redis is tried as well. */
const PATIENCE_MS = 500;
const PAUSE_MS = 100;
/** Rows that neither store has taken; so many mean that both are gone: new requests are refused. */
const MOST_ROWS = 10_000;

interface UnstoredRow {
  readonly row: UsageRow;
  readonly stored: () => void;
}

export interface LedgerWriterOptions {
  readonly pool: DatabasePool;
  readonly log: Logger;
  /** Tries Redis once; true: Redis has taken the row. */
  readonly settleInRedis: (row: UsageRow) => Promise<boolean>;
  /** Redis was the first to take the row; either this or `onStored` is called for each row, once. */
  readonly onSettled: (row: UsageRow) => void;
  /** The ledger was the first to take these rows. `accounts`: those of all rows of the transaction. */
  readonly onStored: (rows: readonly UsageRow[], accounts: readonly Account[]) => void;
}

export class LedgerWriter {
  readonly #options: LedgerWriterOptions;
  readonly #unstored = new Map<string, UnstoredRow>();
  #transaction: Promise<void> | null = null;
  #running = false;

  constructor(options: LedgerWriterOptions) {
    this.#options = options;
  }

  get full(): boolean {
    return this.#unstored.size >= MOST_ROWS;
  }

  get size(): number {
    return this.#unstored.size;
  }

  /** Resolves when the row is durable, however long that takes. */
  store(row: UsageRow): Promise<void> {
    return new Promise((stored) => {
      this.#unstored.set(row.id, { row, stored });
      inBackground(this.#run(), this.#options.log, "writing charges to the ledger");
    });
  }

  async #run(): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    try {
      while (this.#unstored.size > 0) {
        const some = [...this.#unstored.values()].slice(0, ROWS_AT_ONCE).map(({ row }) => row);
        // One at a time: a frozen Postgres must not swallow the whole pool.
        this.#transaction ??= this.#write(some);
        await Promise.race([this.#transaction, sleep(PATIENCE_MS)]);
        const left = some.filter(({ id }) => this.#unstored.has(id));
        if (left.length === 0) continue;
        await Promise.all(left.map((row) => this.#tryRedis(row)));
        await sleep(PAUSE_MS);
      }
    } finally {
      this.#running = false;
    }
  }

  async #write(rows: readonly UsageRow[]): Promise<void> {
    try {
      const accounts = await this.#options.pool.transaction((transaction) => chargeRows(transaction, rows));
      reachedMoneyStep("ledger.charged");
      // Redis may have taken some meanwhile.
      const first = rows.filter(({ id }) => this.#unstored.has(id));
      this.#options.onStored(first, accounts);
      for (const { id } of first) this.#found(id);
    } catch (error) {
      this.#options.log.warn({ err: error, rows: rows.length }, "neither store has taken these charges yet");
    } finally {
      this.#transaction = null;
    }
  }

  async #tryRedis(row: UsageRow): Promise<void> {
    const isTaken = await this.#options.settleInRedis(row);
    // The ledger may have taken it meanwhile.
    if (!isTaken || !this.#unstored.has(row.id)) return;
    this.#options.onSettled(row);
    this.#found(row.id);
  }

  #found(id: string): void {
    this.#unstored.get(id)?.stored();
    this.#unstored.delete(id);
  }
}
