/** Limits the batches of an organization: their rows make claims, lists and sweeps slower. */
import { sql, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { takeBatch } from "../../files/storage.ts";
import { ApiError } from "../../lib/api-error.ts";
import { DAY_MS } from "../../lib/clock.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { MAX_KEPT_BATCHES, MAX_OPEN_BATCHES, SHOWN_MS } from "../batch.ts";

/**
 * Counts a batch whose row this transaction has just made.
 * @throws ApiError 429 where the organization has `MAX_OPEN_BATCHES` already; 400 `storage_limit_reached` where it has
 * `MAX_KEPT_BATCHES`.
 */
export async function takePlace(
  transaction: DatabaseTransactionConnection,
  organizationId: string,
): Promise<void> {
  if (!(await takeBatch(transaction, organizationId, MAX_KEPT_BATCHES)))
    throw new ApiError(
      "storage_limit_reached",
      `The organization has ${MAX_KEPT_BATCHES} batches, as many as are kept: each goes ${SHOWN_MS / DAY_MS} days after its end.`,
    );
  // `takeBatch` has locked the organization's sums, so that no two transactions take the last place.
  const open = await transaction.oneFirst(sql.type(z.object({ count: z.bigint().transform(Number) }))`
    select count(*) as count from batches where organization_id = ${organizationId} and state <> 'ended'
  `);
  if (open <= MAX_OPEN_BATCHES) return;
  metrics.refused.inc({ reason: "batches" });
  throw new ApiError(
    "rate_limited",
    `The organization has ${MAX_OPEN_BATCHES} batches that have not ended, as many as it may have at once: wait for some to end, or cancel some.`,
    { retryAfterSeconds: 60 },
  );
}
