import { sql } from "slonik";
import { ApiError } from "../lib/api-error.ts";
import { timestamp } from "../store/timestamp.ts";
import { type Batch } from "./batch.ts";
import type { BatchContext } from "./context.ts";
import { batchNotFound, findBatch } from "./find.ts";

/** Hides an ended message batch for good; a sweep deletes its results later. @throws ApiError 404; 400 before the end. */
export async function deleteBatch(context: BatchContext, organizationId: string, id: string): Promise<Batch> {
  const { pool, clock } = context;
  const batch = await findBatch(context, organizationId, "messages", id);
  if (batch.state !== "ended") {
    throw new ApiError("invalid_request", "The batch is still in progress: cancel it, or wait for its end.");
  }
  const { rowCount } = await pool.query(sql.unsafe`
    update batches set deleted_at = ${timestamp(clock.now())} where id = ${id} and deleted_at is null
  `);
  // Another request has deleted it since.
  if (rowCount === 0) throw batchNotFound(id);
  return batch;
}
