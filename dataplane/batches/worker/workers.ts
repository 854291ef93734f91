/** Which workers live, and what becomes of the items of one that died: they wait again (rules 4.2, 4.4). */
import { sql, type FragmentSqlToken } from "slonik";
import { z } from "zod";
import { metrics } from "../../telemetry/metrics.ts";
import { Counts } from "../counts.ts";
import type { BatchContext } from "../context.ts";
import { eachBatch } from "../each-batch.ts";
import { giveUp } from "./losses.ts";
import { nextStatesOf } from "./next-state.ts";
import { reachedBatchStep } from "../steps.ts";

/** Stores this worker's heartbeat, in Postgres' time because the clocks of pods differ. */
export async function beat({ pool, workerId }: BatchContext): Promise<void> {
  await pool.query(sql.unsafe`
    insert into batch_workers (id) values (${workerId})
    on conflict (id) do update set seen_at = clock_timestamp()
  `);
}

/** Returns a stopping worker's items: they run elsewhere, and do not count as lost. */
export async function handBack(context: BatchContext): Promise<void> {
  await take(context, sql.fragment`worker = ${context.workerId}`, "kept");
}

/** Removes a stopping worker, so that others need not wait to take the items that it still has. */
export async function leave({ pool, workerId }: BatchContext): Promise<void> {
  await pool.query(sql.unsafe`delete from batch_workers where id = ${workerId}`);
}

/** Takes the items of workers that have been silent for `leaseMs`. @returns the number of items. */
export async function takeFromDead(context: BatchContext, leaseMs: number): Promise<number> {
  await context.pool.query(sql.unsafe`
    delete from batch_workers where seen_at < clock_timestamp() - ${leaseMs} * interval '1 millisecond'
  `);
  return await take(context, sql.fragment`worker not in (select id from batch_workers)`, "lost");
}

/**
 * Takes items that this worker has without knowing: their claim was committed, but its answer was lost. No claim may be in
 * progress. `known`: every claim that it runs or has yet to store. @returns the number of items.
 */
export async function takeUnknown(context: BatchContext, known: readonly string[]): Promise<number> {
  const unknown = sql.fragment`claim is null or not claim = any(${sql.array([...known], "uuid")})`;
  return await take(context, sql.fragment`worker = ${context.workerId} and (${unknown})`, "kept");
}

/**
 * Lets running items wait again.
 * @param condition selects them.
 * @param how lost: their worker died while they ran, and one of them may be the cause (losses.ts); kept: it lives.
 */
async function take(
  context: BatchContext,
  condition: FragmentSqlToken,
  how: "lost" | "kept",
): Promise<number> {
  const { pool, clock, log } = context;
  const batches = await pool.anyFirst(sql.type(z.object({ id: z.string() }))`
    select distinct batch_id as id from batch_items where state = 'running' and ${condition}
  `);
  let taken = 0;
  await eachBatch(context, batches, "taken from a worker", async (id) => {
    let givenUp: readonly string[] = [];
    taken += await pool.transaction(async (transaction) => {
      const nextState = (await nextStatesOf(transaction, [id], clock.now())).get(id) ?? "waiting";
      const counts = new Counts();
      if (how === "lost") givenUp = await giveUp(transaction, id, condition);
      if (givenUp.length > 0) counts.add(id, "errored", null, givenUp.length);
      const { rowCount } = await transaction.query(sql.unsafe`
        update batch_items
        set state = ${nextState}, worker = null, claim = null,
          lost_claims = case when ${how === "lost"} then lost_claims || claim else lost_claims end,
          body = case when ${nextState} = 'waiting' then body end
        where batch_id = ${id} and state = 'running' and (${condition})
      `);
      if (nextState !== "waiting" && rowCount > 0) counts.add(id, nextState, null, rowCount);
      await counts.store(transaction);
      reachedBatchStep("leases.written");
      return givenUp.length + rowCount;
    });
    reachedBatchStep("leases.done");
    if (givenUp.length === 0) return;
    log.error({ batch: id, requests: givenUp }, "gave up batch items whose workers died each time");
    metrics.batchItemsDone.inc({ state: "errored" }, givenUp.length);
  });
  return taken;
}
