/**
 * Cancels a batch: waiting items never begin; running ones finish and count (rule 4.5). From `expires_at` on it is too late:
 * nothing begins any more, and what waits has expired, whether a worker has come to note it or not.
 */
import { sql } from "slonik";
import { ApiError } from "../lib/api-error.ts";
import { timestamp } from "../store/timestamp.ts";
import { batchColumns, batchSchema, type Batch, type BatchForm } from "./batch.ts";
import type { BatchContext } from "./context.ts";
import { endWaiting } from "./counts.ts";
import { findBatch } from "./find.ts";
import { reachedBatchStep } from "./steps.ts";

/**
 * Cancels a batch; doing so again before its end changes nothing, and doing so for the first time after `expires_at` lets it
 * expire. @throws ApiError 404; 400 after the end.
 */
export async function cancelBatch(
  context: BatchContext,
  organizationId: string,
  form: BatchForm,
  id: string,
): Promise<Batch> {
  const { pool, clock, wake } = context;
  await findBatch(context, organizationId, form, id);
  const now = timestamp(clock.now());
  const batch = await pool.transaction(async (transaction) => {
    const asked = await transaction.maybeOne(sql.type(batchSchema)`
      update batches batch
      set cancel_initiated_at = coalesce(cancel_initiated_at, case when expires_at > ${now} then ${now} end)
      where id = ${id} and state <> 'ended'
      returning ${batchColumns}
    `);
    if (asked === null) {
      throw new ApiError("invalid_request", "The batch has ended: there is nothing left to cancel.");
    }
    // While the input file is read its items do not count yet; they are cancelled when it has been read.
    if (asked.state !== "in_progress") return asked;
    await endWaiting(transaction, id, asked.cancelInitiatedAt === null ? "expired" : "canceled");
    reachedBatchStep("cancel.written");
    return await findBatch({ pool: transaction, clock }, organizationId, form, id);
  });
  reachedBatchStep("cancel.done");
  wake();
  return batch;
}
