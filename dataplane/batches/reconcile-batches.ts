/**
 * Compares batches with the ledger: every result line that was paid for has exactly one usage row, and every usage row
 * of a batch has a result line (design.md §5). Data planes may run meanwhile: result, row and counters are stored in one
 * transaction, and everything is read as of one moment.
 */
import { sql, type CommonQueryMethods, type DatabasePool } from "slonik";
import { z } from "zod";
import { asOfOneMoment } from "../billing/reconcile/reconcile-ledger.ts";
import { firstLines } from "../billing/reconcile/report-lines.ts";
import { SHOWN_MS, unreadableResults } from "./batch.ts";
import { allCounted } from "./counts.ts";

/** @returns one line for each broken invariant; none when everything agrees. */
export async function reconcileBatches(pool: DatabasePool): Promise<readonly string[]> {
  return await pool.transaction(async (transaction) => {
    await asOfOneMoment(transaction);
    return await findFaults(transaction);
  });
}

/** Does the same inside the caller's transaction. */
export async function findFaults(transaction: CommonQueryMethods): Promise<readonly string[]> {
  return [
    ...(await wrongItems(transaction)),
    ...(await strayRows(transaction)),
    ...(await wrongCounts(transaction)),
    ...(await wrongSums(transaction)),
    ...(await leftItems(transaction)),
  ];
}

/** Batches with all their items: the input was read, and the sweep has not begun to delete them. */
const whole = sql.fragment`
  batch.state in ('in_progress', 'finalizing', 'ended') and not batch.emptied
  and not ${unreadableResults}
`;
const ran = sql.fragment`item.state in ('succeeded', 'errored')`;

/**
 * Checks that a succeeded item has a usage row, one that is not over or never ran has none, exactly the items that ran
 * have a line, and exactly the running ones have a worker.
 */
async function wrongItems(transaction: CommonQueryMethods): Promise<string[]> {
  const schema = z.object({ id: z.string(), number: z.number(), state: z.string(), fault: z.string() });
  const rows = await transaction.any(sql.type(schema)`
    select item.batch_id as id, item.number, item.state,
      case when item.state = 'succeeded' and usage.id is null then 'has no usage row'
        when not ${ran} and usage.id is not null then 'has a usage row'
        when ${ran} and item.line is null then 'has no result line'
        when not ${ran} and item.line is not null then 'has a result line'
        when item.worker is null then 'has no worker' else 'has a worker' end as fault
    from batch_items item left join usage on usage.accepted_at = item.accepted_at and usage.id = item.request_id
    -- Rows of closed months stand apart (rule 12.5).
    where (item.state = 'succeeded' and usage.id is null
        and item.accepted_at >= (select closed_until from usage_retention)) or (not ${ran} and usage.id is not null)
      or ${ran} <> (item.line is not null)
      or (item.state = 'running') <> (item.worker is not null)
    order by 1, 2
  `);
  return firstLines(
    rows,
    ({ id, number, state, fault }) => `${id}: request ${number} is ${state} and ${fault}`,
  );
}

/**
 * Checks that a usage row of a batch belongs to a request of that batch, and to the organization, project and key that made
 * it. A row older than `SHOWN_MS` may be of a batch that was deleted.
 */
async function strayRows(transaction: CommonQueryMethods): Promise<string[]> {
  const rows = await transaction.any(sql.type(z.object({ id: z.string(), batchId: z.string().nullable() }))`
    select usage.id, usage.batch_id as "batchId"
    from usage left join batches batch on batch.id = usage.batch_id
      left join batch_items item
        on item.batch_id = usage.batch_id and item.request_id = usage.id and item.accepted_at = usage.accepted_at
    where (usage.batch_id is not null) <> (usage.endpoint = 'batch')
      or (usage.batch_id is not null and (
        (batch.id is null and usage.accepted_at > now() - ${SHOWN_MS} * interval '1 millisecond') or usage.provisional
        or (usage.organization_id, usage.project_id, usage.key_id)
          <> (batch.organization_id, batch.project_id, batch.key_id)
        or (${whole} and item.batch_id is null)))
    order by usage.id
  `);
  return firstLines(rows, ({ id, batchId }) => `${id}: its usage row is of no request of batch ${batchId}`);
}

/** Checks that the counters are those of the items, and that nothing is left of a batch that is ending or has ended. */
async function wrongCounts(transaction: CommonQueryMethods): Promise<string[]> {
  const rows = await transaction.any(sql.type(z.object({ id: z.string() }))`
    select batch.id from batches batch
      left join lateral (
        select count(*) as total, count(*) filter (where state = 'succeeded') as succeeded,
          count(*) filter (where state = 'errored') as errored,
          count(*) filter (where state = 'canceled') as canceled,
          count(*) filter (where state = 'expired') as expired
        from batch_items item where item.batch_id = batch.id
      ) as found on true
    where (${whole} and (batch.total, batch.succeeded, batch.errored, batch.canceled, batch.expired)
        is distinct from (found.total, found.succeeded, found.errored, found.canceled, found.expired))
      or (batch.state in ('finalizing', 'ended') and not ${allCounted})
    order by 1
  `);
  return firstLines(rows, ({ id }) => `${id}: its counts are not those of its requests`);
}

/** Checks, also after the results were deleted, that every success has its row and the tokens are those of the rows. */
async function wrongSums(transaction: CommonQueryMethods): Promise<string[]> {
  const rows = await transaction.any(sql.type(z.object({ id: z.string() }))`
    select batch.id from batches batch
      left join (
        select batch_id, sum(rows) as rows, sum(input) as input, sum(cached) as cached, sum(output) as output,
          sum(reasoning) as reasoning
        from (
          select batch_id, count(*) as rows,
            sum(input_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens) as input,
            sum(cache_read_tokens) as cached, sum(output_tokens) as output, sum(reasoning_tokens) as reasoning
          from usage where batch_id is not null group by batch_id
          union all
          select batch_id, requests, input_tokens, cached_tokens, output_tokens, reasoning_tokens
          from usage_closed_batches where day < (select closed_until from usage_retention)
        ) as months group by batch_id
      ) as paid on paid.batch_id = batch.id
    where coalesce(paid.rows, 0) not between batch.succeeded and batch.succeeded + batch.errored
      or (batch.input_tokens, batch.cached_tokens, batch.output_tokens, batch.reasoning_tokens) is distinct from
        (coalesce(paid.input, 0), coalesce(paid.cached, 0), coalesce(paid.output, 0), coalesce(paid.reasoning, 0))
    order by 1
  `);
  return firstLines(rows, ({ id }) => `${id}: its counts or tokens are not those of its usage rows`);
}

/** Checks that emptied batches have no requests left: while one has, its row cannot be deleted, nor can others with it. */
async function leftItems(transaction: CommonQueryMethods): Promise<string[]> {
  const schema = z.object({ id: z.string(), left: z.bigint() });
  const rows = await transaction.any(sql.type(schema)`
    select batch.id, count(*) as left from batches batch join batch_items item on item.batch_id = batch.id
    where batch.emptied group by batch.id order by 1
  `);
  return firstLines(rows, ({ id, left }) => `${id}: ${left} of its requests are left, though it was emptied`);
}
