/** The connection pool to Postgres, the truth about money, keys, files and batches (design.md §6). */
import {
  createPool,
  InvalidInputError,
  SchemaValidationError,
  SlonikError,
  sql,
  type DatabasePool,
  type Interceptor,
  type QueryResultRow,
} from "slonik";
import { causesOf, sqlStateOf } from "../lib/causes.ts";
import { countStatement } from "../telemetry/counts.ts";
import { inLine } from "./pool-turns.ts";
import { onceThere, type WaitOptions } from "./once-there.ts";
import { boundedDriver } from "./postgres-driver.ts";
import { isStoreAway } from "./store-away.ts";

/** Longest pause in a transaction: one whose process stands still, and all who wait for its locks, would wait for ever. */
const IDLE_IN_TRANSACTION_MS = 30_000;

export interface PostgresOptions {
  /** Connections of this process; a hundred pods must fit one server, so it is small. Default 10. */
  readonly maxConnections?: number;
  /** A statement that takes longer is cancelled. Default 15 s; reports may ask for more. */
  readonly statementTimeoutMs?: number;
  /** Who waits longer for a connection gets StoreAway. Absent: there is no limit. */
  readonly connectionWithinMs?: number;
  /**
   * Called for each connection that broke while idle, without which one of them would end the process, and each statement
   * that failed because Postgres was away.
   */
  readonly onError: (error: Error) => void;
}

/**
 * Opens the pool, as `createPostgresPool` does, and waits until Postgres answers.
 * @throws Error when it does not in time.
 */
export async function openPostgres(
  url: string,
  options: PostgresOptions & WaitOptions,
): Promise<DatabasePool> {
  return await oncePostgresIsThere(async () => answering(await createPostgresPool(url, options)), options);
}

/** `onceThere`, for what is asked through a pool. */
export const oncePostgresIsThere = <Value>(ask: () => Promise<Value>, options: WaitOptions): Promise<Value> =>
  onceThere(ask, isStoreAway, options);

/**
 * Makes a pool that connects to nothing yet. int8 arrives as bigint, timestamptz as Unix milliseconds (number), rows of
 * `sql.type(schema)` are checked by their schema.
 */
export async function createPostgresPool(url: string, options: PostgresOptions): Promise<DatabasePool> {
  const { maxConnections = 10, connectionWithinMs } = options;
  const pool = await createPool(url, {
    driverFactory: boundedDriver({
      statementMs: options.statementTimeoutMs ?? 15_000,
      idleInTransactionMs: IDLE_IN_TRANSACTION_MS,
    }),
    maxPoolSize: maxConnections,
    connectionTimeout: 5_000,
    idleTimeout: 30_000,
    connectionRetryLimit: 1,
    // Only serialization failures and deadlocks are retried.
    transactionRetryLimit: 5,
    interceptors: [rowChecks, timing],
    // The default, DISCARD ALL, costs a round trip for each query. We leave nothing behind in a session, which a
    // PgBouncer gives to somebody else after each transaction: no SET, no temporary table, only advisory locks
    // of transactions (rule 12.3).
    resetConnection: async () => {},
  });
  // Slonik tells of statements here as well that Postgres answered otherwise than their caller, who is told too, had hoped.
  pool.on("error", (error) => {
    if (!(error instanceof SlonikError) || isStoreAway(error)) options.onError(error);
  });
  return connectionWithinMs === undefined ? pool : inLine(pool, maxConnections, connectionWithinMs);
}

/** Returns the pool once Postgres has answered. @throws Error when it does not. */
async function answering(pool: DatabasePool): Promise<DatabasePool> {
  try {
    await pool.query(sql.unsafe`select 1`);
    return pool;
  } catch (error) {
    await pool.end();
    throw error;
  }
}

/** @throws SchemaValidationError when a row is not what the statement's schema says: a bug of ours. */
const rowChecks: Interceptor = {
  name: "row-checks",
  transformRow: ({ resultParser }, query, row) => {
    if (resultParser === undefined) return row;
    const checked = resultParser["~standard"].validate(row);
    if (checked instanceof Promise) throw new TypeError("row schemas are synchronous");
    if (checked.issues !== undefined) throw new SchemaValidationError(query, row, checked.issues);
    return checked.value as QueryResultRow;
  },
};

/** Measures how long each statement took, from when it was handed over. */
const timing: Interceptor = {
  name: "timing",
  afterQueryExecution: ({ queryInputTime }, { sql }) => {
    countStatement(sql, Number(process.hrtime.bigint() - BigInt(queryInputTime)) / 1e9);
    return null;
  },
};

/** Classes of SQLSTATE that are about the data: bad values, broken constraints, limits, what a trigger raises. */
const dataClasses = new Set(["22", "23", "44", "54", "P0"]);

/**
 * True when Postgres, or the library that encodes our values for it, refuses the data of a statement: trying it again at
 * once changes nothing. False for a server that is away, busy, of another schema or in a deadlock.
 */
export const refusesData = (error: unknown): boolean => dataRefusal(error) !== null;

/** Returns the message of such a refusal, which holds no values of other rows; null: it is no such error. */
export function dataRefusal(error: unknown): string | null {
  for (const cause of causesOf(error)) {
    // slonik's error of a value that it does not take has no cause.
    if (cause instanceof RangeError || cause instanceof InvalidInputError) return cause.message;
    const state = sqlStateOf(cause);
    if (state !== null) return dataClasses.has(state.slice(0, 2)) ? cause.message : null;
  }
  return null;
}
