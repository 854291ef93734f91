/**
 * Items whose workers died while they ran. One of them may have ended its process; the others only ran at the same time. So
 * each item that was lost more than once is suspected: a worker runs at most one suspect at a time, the least lost first, and
 * a suspect that is lost again and again, though it runs among unsuspected items only, is given up.
 */
import { sql, type CommonQueryMethods, type FragmentSqlToken } from "slonik";
import { z } from "zod";
import { ApiError } from "../../lib/api-error.ts";
import { batchForms } from "../batch.ts";
import { erroredLine } from "../lines.ts";

/** Losses at which an item is suspected. */
export const SUSPECT_LOSSES = 2;
/** Losses at which an item is given up. */
const MOST_LOSSES = 5;

/** The result of an item that is given up: the request, or an upstream's answer to it, ended each process that ran it. */
const givenUp = (): ApiError =>
  new ApiError("internal", "The service failed each time it ran this request.", { retry: false });

/**
 * Ends the lost items of a batch that reach `MOST_LOSSES` with this loss. The batch must be locked.
 * @param condition selects the lost ones of its running items.
 * @returns the ids of their requests.
 */
export async function giveUp(
  db: CommonQueryMethods,
  batchId: string,
  condition: FragmentSqlToken,
): Promise<readonly string[]> {
  const form = await db.oneFirst(sql.type(z.object({ form: z.enum(batchForms) }))`
    select form from batches where id = ${batchId}
  `);
  const schema = z.object({ number: z.number(), customId: z.string(), requestId: z.string() });
  const items = await db.any(sql.type(schema)`
    select number, custom_id as "customId", request_id as "requestId" from batch_items
    where batch_id = ${batchId} and state = 'running' and losses >= ${MOST_LOSSES - 1} and (${condition})
    order by number for update
  `);
  for (const item of items)
    await db.query(sql.unsafe`
      update batch_items set state = 'errored', line = ${sql.binary(erroredLine(form, item, givenUp()))}, body = null,
        worker = null, claim = null, lost_claims = lost_claims || claim
      where batch_id = ${batchId} and number = ${item.number}
    `);
  return items.map(({ requestId }) => requestId);
}
