/**
 * Deletes what nobody can read any more: results after 29 days, rows whose lines are in files, batches whose creation
 * broke off. Also corrects batches that would never end.
 */
import { sql } from "slonik";
import { z } from "zod";
import { givingBack } from "../files/storage.ts";
import { timestamp } from "../store/timestamp.ts";
import { RETENTION_MS } from "./batch.ts";
import { correctStuck } from "./counts.ts";
import { discardBatch } from "./create-from-requests.ts";
import type { BatchContext } from "./context.ts";
import { eachBatch } from "./each-batch.ts";
import { removeItems } from "./items.ts";
import { reachedBatchStep } from "./steps.ts";

const BATCHES_AT_ONCE = 50;
/** A message batch whose body nobody takes in any more is swept when it is so old: its process died, or could not clear it. */
const CREATING_MS = 30 * 60_000;

export async function sweepBatches(context: BatchContext): Promise<void> {
  const { pool, clock } = context;
  const now = clock.now();
  await pool.query(sql.unsafe`
    update batches set archived_at = ended_at + ${RETENTION_MS} * interval '1 millisecond'
    where state = 'ended' and not emptied and form = 'messages' and archived_at is null
      and ended_at <= ${timestamp(now - RETENTION_MS)}
  `);
  const idSchema = z.object({ id: z.string() });
  const unreadable = await pool.anyFirst(sql.type(idSchema)`
    select id from batches
    where state = 'ended' and not emptied and (form = 'openai' or archived_at is not null or deleted_at is not null)
    order by ended_at limit ${BATCHES_AT_ONCE}
  `);
  await eachBatch(context, unreadable, "emptied", async (id) => {
    await removeItems(pool, id);
    reachedBatchStep("sweep.removed");
    await pool.query(sql.unsafe`
      with gone as (
        update batches set emptied = true where id = ${id} and not emptied returning organization_id, stored_bytes
      ), ${givingBack(sql.fragment`gone`, 0)}
      select from gone
    `);
  });
  const abandoned = await pool.anyFirst(sql.type(idSchema)`
    select id from batches
    where state = 'creating' and created_at < ${timestamp(now - CREATING_MS)}
      and (worker not in (select id from batch_workers)
        or (worker = ${context.workerId} and not id = any(${sql.array([...context.creating], "text")})))
    limit ${BATCHES_AT_ONCE}
  `);
  await eachBatch(context, abandoned, "discarded", (id) => discardBatch(context, id));
  await correctStuck(context);
}
