/** The counters of batches, which change in the same transactions as their items, and the correction of wrong ones. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { promptOf } from "../billing/token-usage.ts";
import type { UsageRow } from "../billing/ledger/usage-row.ts";
import { itemEnds } from "./batch.ts";
import type { BatchContext } from "./context.ts";
import { eachBatch } from "./each-batch.ts";

type Counted = (typeof itemEnds)[number];
interface Sums extends Record<Counted, number> {
  input: number;
  cached: number;
  output: number;
  reasoning: number;
}

/** What a transaction adds to the counters of its batches. */
export class Counts {
  readonly #byBatch = new Map<string, Sums>();

  add(batchId: string, state: Counted, row: UsageRow | null, times = 1): void {
    let sums = this.#byBatch.get(batchId);
    if (sums === undefined) {
      sums = {
        succeeded: 0,
        errored: 0,
        canceled: 0,
        expired: 0,
        input: 0,
        cached: 0,
        output: 0,
        reasoning: 0,
      };
      this.#byBatch.set(batchId, sums);
    }
    sums[state] += times;
    if (row === null) return;
    const { tokens } = row;
    sums.input += promptOf(tokens);
    sums.cached += tokens.cacheRead;
    sums.output += tokens.output;
    sums.reasoning += tokens.reasoning;
  }

  /** @returns whether a batch has nothing left to run. */
  async store(db: CommonQueryMethods): Promise<boolean> {
    if (this.#byBatch.size === 0) return false;
    const over = await db.anyFirst(sql.type(z.object({ over: z.boolean() }))`
      update batches batch set
        succeeded = batch.succeeded + added.succeeded, errored = batch.errored + added.errored,
        canceled = batch.canceled + added.canceled, expired = batch.expired + added.expired,
        overdue = batch.overdue or added.expired > 0,
        input_tokens = batch.input_tokens + added.input, cached_tokens = batch.cached_tokens + added.cached,
        output_tokens = batch.output_tokens + added.output, reasoning_tokens = batch.reasoning_tokens + added.reasoning
      from ${sql.unnest(
        [...this.#byBatch].map(([id, sums]) => [
          id,
          ...itemEnds.map((state) => sums[state]),
          sums.input,
          sums.cached,
          sums.output,
          sums.reasoning,
        ]),
        ["text", "int4", "int4", "int4", "int4", "int8", "int8", "int8", "int8"],
      )} as added (id, succeeded, errored, canceled, expired, input, cached, output, reasoning)
      where batch.id = added.id
      returning ${allCounted} as "over"
    `);
    return over.includes(true);
  }
}

/** Ends the items of a batch that have not begun, and counts them. The batch must be locked. */
export async function endWaiting(
  db: CommonQueryMethods,
  id: string,
  state: "canceled" | "expired",
): Promise<void> {
  const { rowCount } = await db.query(sql.unsafe`
    update batch_items set state = ${state}, body = null where batch_id = ${id} and state = 'waiting'
  `);
  const counts = new Counts();
  counts.add(id, state, null, rowCount);
  await counts.store(db);
}

/** True when all items of a batch are over by its counters. */
export const allCounted = sql.fragment`
  (batch.succeeded + batch.errored + batch.canceled + batch.expired = batch.total)
`;
/** True when all items of a batch are over by their states. */
export const nothingLeft = sql.fragment`
  not exists (select from batch_items where batch_id = batch.id and state = 'waiting')
  and not exists (select from batch_items where batch_id = batch.id and state = 'running')
`;

/**
 * Counts a batch's items again where its counters differ from them. Both change in the same transactions, so only a bug
 * makes them differ; without this such a batch would never end, or end early. @returns whether anything was corrected.
 */
export async function correctCounts({ pool, log }: BatchContext, id: string): Promise<boolean> {
  const corrected = await pool.transaction(async (transaction) => {
    await transaction.query(sql.unsafe`select from batches where id = ${id} for update`);
    const { rowCount } = await transaction.query(sql.unsafe`
      update batches batch set
        succeeded = found.succeeded, errored = found.errored, canceled = found.canceled, expired = found.expired,
        (input_tokens, cached_tokens, output_tokens, reasoning_tokens) = (
          select coalesce(sum(input_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens), 0),
            coalesce(sum(cache_read_tokens), 0), coalesce(sum(output_tokens), 0), coalesce(sum(reasoning_tokens), 0)
          from batch_items item join usage on usage.accepted_at = item.accepted_at and usage.id = item.request_id
          where item.batch_id = ${id}
        ),
        state = case when found.ended < batch.total then 'in_progress' else batch.state end,
        finalizing_at = case when found.ended < batch.total then null else batch.finalizing_at end
      from (
        select count(*) filter (where state = 'succeeded') as succeeded,
          count(*) filter (where state = 'errored') as errored,
          count(*) filter (where state = 'canceled') as canceled,
          count(*) filter (where state = 'expired') as expired,
          count(*) filter (where state not in ('waiting', 'running')) as ended
        from batch_items where batch_id = ${id}
      ) as found
      where batch.id = ${id} and batch.state in ('in_progress', 'finalizing')
        and (batch.succeeded, batch.errored, batch.canceled, batch.expired)
          is distinct from (found.succeeded, found.errored, found.canceled, found.expired)
    `);
    return rowCount > 0;
  });
  if (corrected)
    log.error({ batch: id }, "the counts of a batch were not those of its requests: counted anew");
  return corrected;
}

/** Corrects the counts of batches that would never end, or would end with requests left. */
export async function correctStuck(context: BatchContext): Promise<void> {
  const stuck = await context.pool.anyFirst(sql.type(z.object({ id: z.string() }))`
    select id from batches batch where state = 'in_progress' and ${allCounted} <> (${nothingLeft})
  `);
  await eachBatch(context, stuck, "counted anew", (id) => correctCounts(context, id));
}
