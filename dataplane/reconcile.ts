/**
 * `main.ts reconcile`, and `npm run reconcile` on one machine: recomputes the books from grants and usage rows and
 * compares everything that keeps them, joins the results of batches to their rows, and counts again what organizations
 * keep. It reads only, and works beside running data planes.
 */
import { reconcileBatches } from "./batches/reconcile-batches.ts";
import { reconcileStorage } from "./batches/reconcile-storage.ts";
import { reconcileLedger } from "./billing/reconcile/reconcile-ledger.ts";
import { openPostgres } from "./store/postgres.ts";
import { openRedis, redisReady } from "./store/redis.ts";

/** Longest time of one statement: a large ledger takes minutes to count. */
const STATEMENT_TIMEOUT_MS = 600_000;

/**
 * Returns one line for each broken invariant, and a last one with counts.
 * @throws Error when a store cannot be reached.
 */
export async function reconcile(
  databaseUrl: string,
  redisUrl: string,
): Promise<{ readonly exact: boolean; readonly lines: readonly string[] }> {
  const redis = openRedis(redisUrl, { commandTimeoutMs: 30_000, onError: () => {} });
  try {
    await redisReady(redis, 5_000);
    const pool = await openPostgres(databaseUrl, {
      maxConnections: 2,
      statementTimeoutMs: STATEMENT_TIMEOUT_MS,
      withinMs: 5_000,
      onError: () => {},
    });
    try {
      const { organizations, usageRows, holds, ...books } = await reconcileLedger(pool, redis);
      const broken = [...books.broken, ...(await reconcileBatches(pool)), ...(await reconcileStorage(pool))];
      const checked = [
        counted(organizations, "account"),
        counted(usageRows, "usage row"),
        counted(holds, "hold"),
      ].join(", ");
      const end = broken.length === 0 ? `exact: ${checked}` : `${broken.length} broken: ${checked}`;
      return { exact: broken.length === 0, lines: [...broken, end] };
    } finally {
      await pool.end();
    }
  } finally {
    redis.disconnect();
  }
}

/** `1 account`, `2 accounts`. */
const counted = (count: bigint | number, noun: string): string =>
  `${count} ${noun}${Number(count) === 1 ? "" : "s"}`;
