/** Changes of one organization's keys, people and projects are made one after the other. */
import { sql, type DatabasePool, type DatabaseTransactionConnection } from "slonik";
import { REQUESTS_AT_ONCE } from "../billing/holds/free-budget.ts";
import { ApiError } from "../lib/api-error.ts";
import { FairPlaces } from "../lib/fair-places.ts";
import { metrics } from "../telemetry/metrics.ts";

/**
 * Locks an organization until the transaction ends, so that changes of its keys, people and projects take turns. Copying
 * a snapshot locks it first as well, then its keys, then its account.
 * @param namespace that must own the organization, if given. @returns whether there is such an organization.
 */
export async function lockOrganization(
  transaction: DatabaseTransactionConnection,
  id: string,
  namespace?: string,
): Promise<boolean> {
  const owned = namespace === undefined ? sql.fragment`` : sql.fragment`and namespace = ${namespace}`;
  const { rowCount } = await transaction.query(sql.unsafe`
    select 1 from organizations where id = ${id} ${owned} for no key update
  `);
  return rowCount > 0;
}

/** Changes that may wait: none is refused that the budget of endpoints that cost nothing lets through. */
const WAITING = { waitingOfOne: REQUESTS_AT_ONCE, waiting: 10_000 };
/** Longest wait: as many as may wait take less, unless Postgres does not answer and each one ahead takes its time-out. */
const MOST_WAIT_MS = 10_000;
/** Places of each pool: one change of an organization at a time. */
const turns = new WeakMap<DatabasePool, FairPlaces>();

/**
 * Runs a transaction with the organization locked. Each process runs one at a time of an organization: the others wait without
 * a connection, which live requests need (rule 7.7). A change is made even if its client has left meanwhile.
 * @throws ApiError 429 when too many wait already, 503 after ten seconds.
 */
export async function changeOrganization<Value>(
  pool: DatabasePool,
  id: string,
  work: (transaction: DatabaseTransactionConnection) => Promise<Value>,
): Promise<Value> {
  const places = turns.get(pool) ?? new FairPlaces({ places: Infinity, placesOfOne: 1, ...WAITING });
  turns.set(pool, places);
  const release = await places.take(id, AbortSignal.timeout(MOST_WAIT_MS)).catch((cause: unknown) => {
    metrics.refused.inc({ reason: "changes" });
    const message = "Keys and projects cannot be changed right now. Try again in a moment.";
    throw new ApiError("unavailable", message, { retryAfterSeconds: 1, cause });
  });
  if (typeof release === "string") {
    metrics.refused.inc({ reason: "changes" });
    throw new ApiError("rate_limited", "Too many changes of keys and projects wait already.", {
      retryAfterSeconds: 1,
    });
  }
  try {
    return await pool.transaction(async (transaction) => {
      await lockOrganization(transaction, id);
      return await work(transaction);
    });
  } finally {
    release();
  }
}
