/**
 * Items whose workers died while they ran. One of them may be the reason, as what it makes a process do ends it; the others only ran
 * beside it. So each that was lost more than once is suspected: of these at most one runs in a worker at a time, the least lost
 * first, and who is lost again and again among items that were not is given up.
 */
import { sql, type CommonQueryMethods, type FragmentSqlToken } from "slonik";
import { z } from "zod";
import { ApiError } from "../../lib/api-error.ts";
import { erroredLine } from "../lines.ts";

/** Losses from which on an item is suspected. */
export const SUSPECT_LOSSES = 2;
/** Losses with which it is given up. */
const MOST_LOSSES = 5;

/** What a client is told of one: the request, or what an upstream says to it, ended each process that ran it. */
const givenUp = (): ApiError =>
  new ApiError("internal", "The service failed each time it ran this request.", { retry: false });

/**
 * Ends those running items of a batch that have now been lost as often as they may be. The batch must be locked.
 * @param condition which of its running items are lost.
 * @returns the ids of their requests.
 */
export async function giveUp(
  db: CommonQueryMethods,
  batchId: string,
  condition: FragmentSqlToken,
): Promise<readonly string[]> {
  const form = await db.oneFirst(sql.type(z.object({ form: z.enum(["messages", "openai"]) }))`
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
