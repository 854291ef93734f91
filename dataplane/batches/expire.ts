/** From `expires_at` on no item starts: waiting ones become `expired`, running ones finish and count (rule 4.5). */
import { sql } from "slonik";
import { z } from "zod";
import { timestamp } from "../store/timestamp.ts";
import type { BatchContext } from "./context.ts";
import { endWaiting } from "./counts.ts";
import { eachBatch } from "./each-batch.ts";
import { reachedBatchStep } from "./steps.ts";

/** Ends inputs that were never read, and lets the waiting items of overdue batches expire. */
export async function expireOverdue(context: BatchContext): Promise<void> {
  const { pool, clock } = context;
  const now = clock.now();
  // An input that could not be read in all that time: the batch ends at once, as its requests are unknown.
  await pool.query(sql.unsafe`
    update batches set state = 'ended', worker = null, claim = null, ended_at = ${timestamp(now)}, overdue = true,
      outcome = case when cancel_initiated_at is null then 'expired' else 'cancelled' end
    where state = 'validating' and expires_at <= ${timestamp(now)}
  `);
  const overdue = await pool.anyFirst(sql.type(z.object({ id: z.string() }))`
    select id from batches batch
    where state = 'in_progress' and expires_at <= ${timestamp(now)}
      and exists (select from batch_items where batch_id = batch.id and state = 'waiting')
  `);
  await eachBatch(context, overdue, "expired", async (id) => {
    await pool.transaction(async (transaction) => {
      await transaction.query(sql.unsafe`select from batches where id = ${id} for update`);
      await endWaiting(transaction, id, "expired");
      reachedBatchStep("expire.written");
    });
    reachedBatchStep("expire.done");
  });
}
