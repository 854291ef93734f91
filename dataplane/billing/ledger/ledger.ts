/**
 * Usage rows in Postgres, the truth about what was used, and the sums that move with them (design.md §5). The statements are
 * functions in the database (store/migrations/0003_charging.sql); charge.ts decides which of them a charge takes, and in what
 * order.
 */
import { sql, type CommonQueryMethods, type DatabasePool, type DatabaseTransactionConnection } from "slonik";
import { causesOf, sqlStateOf } from "../../lib/causes.ts";
import { accountSchema, ledgerWord, type Account } from "./accounts.ts";
import { chargeArray } from "./charge-text.ts";
import type { LedgerWord } from "./ledger-identity.ts";
import type { ChargeClass } from "../prices/price.ts";
import type { UsageRow } from "./usage-row.ts";

/** The columns that `usage` and `usage_hourly` share and that are summed. */
export const summedColumns = [
  "input_tokens",
  "cache_read_tokens",
  "cache_write_5m_tokens",
  "cache_write_1h_tokens",
  "output_tokens",
  "reasoning_tokens",
  "web_searches",
  "web_fetches",
  "x_searches",
  "x_posts",
  "x_profiles",
  "input_micros",
  "cache_read_micros",
  "cache_write_5m_micros",
  "cache_write_1h_micros",
  "output_micros",
  "web_search_micros",
  "web_fetch_micros",
  "x_search_micros",
  "cost_micros",
] as const;
type SummedColumn = (typeof summedColumns)[number];

/** The column of credits that holds each class of charge. */
export const chargeColumns: Readonly<Record<ChargeClass, SummedColumn>> = {
  input: "input_micros",
  cacheRead: "cache_read_micros",
  cacheWrite5m: "cache_write_5m_micros",
  cacheWrite1h: "cache_write_1h_micros",
  output: "output_micros",
  webSearch: "web_search_micros",
  webFetch: "web_fetch_micros",
  xSearch: "x_search_micros",
};

/** Makes the partitions that the next two months need. */
export async function makePartitions(pool: CommonQueryMethods): Promise<void> {
  await pool.query(sql.unsafe`select make_usage_partitions()`);
}

/**
 * Stores and charges encoded rows, all or none. Returns their accounts as they are now.
 * `refusedAt`: since when (Unix milliseconds) a single row has been a dead letter.
 * @throws Error that `refusesData` recognizes when a text is no row, or does not fit; one that `isClosedMonth` recognizes for a
 * row that may have been charged in a month whose rows are gone.
 */
export async function storeRows(
  transaction: DatabaseTransactionConnection,
  texts: readonly string[],
  refusedAt: number | null = null,
): Promise<readonly Account[]> {
  return await transaction.any(sql.type(accountSchema)`
    select organization_id as "organizationId", balance_micros as balance, version, ${ledgerWord}
    from charge_usage(${chargeArray(texts)}::charge[], ${refusedAt === null ? null : timestamp(refusedAt)}::timestamptz)
  `);
}

/** True when a row of a closed month is refused because nobody can tell any more whether it was charged (late_charges). */
export const isClosedMonth = (error: unknown): boolean =>
  causesOf(error).some((cause) => sqlStateOf(cause) === "P0C01");

/**
 * As `storeRows`, in a transaction of its own; no accounts: another process holds the advisory lock with this key.
 * @throws Error as there, and one that `isOtherServer` recognizes when `word` is not the ledger's.
 */
export async function drainRows(
  pool: DatabasePool,
  word: LedgerWord,
  lock: number,
  shard: number,
  texts: readonly string[],
): Promise<readonly Account[]> {
  return await pool.any(sql.type(accountSchema)`
    select organization_id as "organizationId", balance_micros as balance, version, ${word} as ledger
    from drain_charges(${word}, ${lock}, ${shard}, ${chargeArray(texts)}::charge[])
  `);
}

type RowKey = Pick<UsageRow, "acceptedAt" | "id">;

/** Takes the provisional row of a request out of the ledger and its books. The account must be locked. */
export async function dropProvisional(
  transaction: DatabaseTransactionConnection,
  { acceptedAt, id }: RowKey,
): Promise<void> {
  await transaction.query(sql.unsafe`select drop_provisional_usage(${timestamp(acceptedAt)}, ${id})`);
}

/** Whether the final row of this request is in the ledger. */
export async function isStored(
  transaction: DatabaseTransactionConnection,
  { acceptedAt, id }: RowKey,
): Promise<boolean> {
  return await transaction.exists(sql.unsafe`
    select 1 from usage where accepted_at = ${timestamp(acceptedAt)} and id = ${id} and not provisional
    union all
    select 1 where stands_apart(${timestamp(acceptedAt)}, ${id})
  `);
}

const timestamp = (unixMs: number): string => new Date(unixMs).toISOString();
