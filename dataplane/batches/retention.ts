/**
 * Deletes what nobody can read any more: results after 29 days, rows whose lines are in files, batches whose creation
 * broke off, and in the end the batches themselves. Also corrects batches that would never end.
 */
import { sql, type FragmentSqlToken } from "slonik";
import { z } from "zod";
import { givingBack } from "../files/storage.ts";
import { timestamp } from "../store/timestamp.ts";
import { BatchBackOff } from "./back-off.ts";
import { attachedBytes, RETENTION_MS, SHOWN_MS, unreadableResults } from "./batch.ts";
import { correctStuck } from "./counts.ts";
import { discardBatch } from "./create/create-from-requests.ts";
import type { BatchContext } from "./context.ts";
import { eachBatch } from "./each-batch.ts";
import { removeItems } from "./create/items.ts";
import { reachedBatchStep } from "./steps.ts";

const BATCHES_AT_ONCE = 50;
/** Batch rows that one statement of `forgetOld` deletes. */
const ROWS_AT_ONCE = 500;
/** How long each kind of work may take in one sweep; the next sweep continues it. */
const SWEEP_MS = 20_000;
/** Age at which a batch in state `creating` is swept if no process receives its body: its own died, or could not clear it. */
const CREATING_MS = 30 * 60_000;

/**
 * Sweeps once; any number of processes may do so at the same time. A kind of work that fails does not stop the others.
 * @param backOff remembers the batches that this process could not clear; the others come before them.
 */
export async function sweepBatches(context: BatchContext, backOff = new BatchBackOff()): Promise<void> {
  const failures: unknown[] = [];
  for (const work of [archive, emptyUnreadable, discardAbandoned, forgetOld, correctStuck])
    await work(context, backOff).catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

async function archive({ pool, clock }: BatchContext): Promise<void> {
  await pool.query(sql.unsafe`
    update batches set archived_at = ended_at + ${RETENTION_MS} * interval '1 millisecond'
    where state = 'ended' and not emptied and form = 'messages' and archived_at is null
      and ended_at <= ${timestamp(clock.now() - RETENTION_MS)}
  `);
}

/** Deletes the items of ended batches whose results nobody can read; the fields of the batch object stay. */
async function emptyUnreadable(context: BatchContext, backOff: BatchBackOff): Promise<void> {
  const { pool } = context;
  const unemptied = sql.fragment`${unreadableResults} and not emptied`;
  await clearEach(context, backOff, "emptied", unemptied, async (id) => {
    await removeItems(pool, id);
    reachedBatchStep("sweep.removed");
    await pool.query(sql.unsafe`
      with before as (
        select id as batch_id, organization_id as owner, stored_bytes as bytes from batches
        where id = ${id} and not emptied for update
      ), emptied as (
        update batches set emptied = true, headers = '{}', stored_bytes = ${attachedBytes} from before where id = batch_id
        returning owner, bytes - stored_bytes as freed
      ), gone as (
        select owner as organization_id, freed as stored_bytes from emptied
      ), ${givingBack(sql.fragment`gone`, 0)}
      select from gone
    `);
  });
}

async function discardAbandoned(context: BatchContext, backOff: BatchBackOff): Promise<void> {
  const { clock, workerId, creating } = context;
  const abandoned = sql.fragment`
    state = 'creating' and created_at < ${timestamp(clock.now() - CREATING_MS)}
      and (worker not in (select id from batch_workers)
        or (worker = ${workerId} and not id = any(${sql.array([...creating], "text")})))
  `;
  await clearEach(context, backOff, "discarded", abandoned, (id) => discardBatch(context, id));
}

/** Deletes the rows of batches that are not shown any more; only their usage rows stay. */
async function forgetOld({ pool, clock }: BatchContext): Promise<void> {
  const until = performance.now() + SWEEP_MS;
  let rows = ROWS_AT_ONCE;
  while (rows === ROWS_AT_ONCE && performance.now() < until)
    ({ rowCount: rows } = await pool.query(sql.unsafe`
      with gone as (
        delete from batches where id in (
          select id from batches where emptied and ended_at <= ${timestamp(clock.now() - SHOWN_MS)}
          order by ended_at limit ${ROWS_AT_ONCE} for update skip locked
        ) returning id, organization_id, stored_bytes
      ), sums as (
        delete from usage_closed_batches where batch_id in (select id from gone)
      ), ${givingBack(sql.fragment`gone`, 0, 1)}
      select from gone
    `));
}

/**
 * Clears the batches that `condition` finds, a portion at a time. Batches that could not be cleared before come last, so
 * that the others do not wait for them, unless they are more than `BatchBackOff` remembers.
 */
async function clearEach(
  context: BatchContext,
  backOff: BatchBackOff,
  what: string,
  condition: FragmentSqlToken,
  clear: (id: string) => Promise<void>,
): Promise<void> {
  const { pool, clock } = context;
  const until = performance.now() + SWEEP_MS;
  const find = (which: FragmentSqlToken) =>
    pool.anyFirst(sql.type(z.object({ id: z.string() }))`
      select id from batches batch where ${condition} and ${which} order by ended_at limit ${BATCHES_AT_ONCE}
    `);
  const clearAll = (ids: readonly string[]) =>
    eachBatch(context, ids, what, async (id) => {
      if (performance.now() >= until) return;
      try {
        await clear(id);
        backOff.wentWell(id);
      } catch (error) {
        backOff.failed(id, clock.now());
        throw error;
      }
    });
  let found: number;
  do {
    const ids = await find(sql.fragment`not id = any(${sql.array([...backOff.known], "text")})`);
    await clearAll(ids);
    found = ids.length;
  } while (found === BATCHES_AT_ONCE && performance.now() < until);
  const resting = new Set(backOff.ids(clock.now()));
  const rested = backOff.known.filter((id) => !resting.has(id));
  if (rested.length > 0) await clearAll(await find(sql.fragment`id = any(${sql.array(rested, "text")})`));
}
