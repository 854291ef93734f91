/**
 * Ends batches whose last item is over. The files of the Chat/Responses form are written hidden and shown in the
 * transaction that sets the final status; a worker that dies before it leaves files that nobody sees.
 */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { showFile, type StoredFile } from "../files/catalog.ts";
import { countStorage } from "../files/storage.ts";
import { allCounted, correctCounts, nothingLeft } from "./counts.ts";
import { timestamp } from "../store/timestamp.ts";
import { batchColumns, batchSchema, RETENTION_MS, type Batch } from "./batch.ts";
import type { BatchContext } from "./context.ts";
import type { BatchBackOff } from "./back-off.ts";
import { resultLines } from "./results.ts";
import { reachedBatchStep } from "./steps.ts";
import type { Turns } from "./turns.ts";
import { BatchMovedOn } from "./create/items.ts";
import { validate } from "./create/validate.ts";

/** Moves batches with nothing left to run to `finalizing`. */
export async function closeFinished({ pool, clock }: BatchContext): Promise<void> {
  const { rowCount } = await pool.query(sql.unsafe`
    update batches batch set state = 'finalizing', finalizing_at = ${timestamp(clock.now())}
    where state = 'in_progress' and ${allCounted} and ${nothingLeft}
  `);
  if (rowCount > 0) reachedBatchStep("close.done");
}

/**
 * Reads one input or ends one batch, if there is one that no living worker has. Organizations take turns, as either may
 * take a minute; each one's oldest batch comes first (rule 4.5). False: there was none.
 */
export async function workOnOne(
  context: BatchContext,
  backOff: BatchBackOff,
  turns: Turns,
): Promise<boolean> {
  const { pool, clock, log } = context;
  const batch = await pool.maybeOne(sql.type(batchSchema)`
    update batches batch set worker = ${context.workerId}, claim = gen_random_uuid()
    where id = (
      select id from batches
      where state in ('validating', 'finalizing')
        -- What is this worker's own was taken for it by a statement whose answer never came.
        and (worker is null or worker = ${context.workerId} or worker not in (select id from batch_workers))
        and not id = any(${sql.array(backOff.ids(clock.now()), "text")})
      order by coalesce(array_position(${sql.array([...turns.organizations], "text")}, organization_id), 0), position
      limit 1 for update skip locked
    )
    returning ${batchColumns}
  `);
  if (batch === null) return false;
  turns.had(batch.organizationId);
  try {
    if (batch.state === "validating") await validate(context, batch);
    else await finish(context, batch);
    backOff.wentWell(batch.id);
  } catch (error) {
    // Nothing of it is this worker's to try again.
    if (error instanceof BatchMovedOn) return true;
    log.warn({ err: error, batch: batch.id, state: batch.state }, "a batch could not be read or ended yet");
    backOff.failed(batch.id, clock.now());
    await giveBack(context, batch).catch(() => undefined);
  }
  return true;
}

async function giveBack({ pool }: BatchContext, { id, claim }: Batch): Promise<void> {
  await pool.query(
    sql.unsafe`update batches set worker = null, claim = null where id = ${id} and claim = ${claim}`,
  );
}

async function finish(context: BatchContext, batch: Batch): Promise<void> {
  if (await correctCounts(context, batch.id)) throw new Error("its counts were not those of its requests");
  const written: StoredFile[] = [];
  let isEnded = false;
  try {
    isEnded = await writeEnd(context, batch, written);
  } finally {
    // Each try writes files of its own, which count as stored. Those of a failed try must not stay until the sweep days later.
    if (!isEnded) await discard(context, written);
  }
  reachedBatchStep("finish.done");
}

/** @param written receives the hidden files as they are made. @returns false: another worker took the batch and ends it. */
async function writeEnd(context: BatchContext, batch: Batch, written: StoredFile[]): Promise<boolean> {
  const { pool, clock } = context;
  const wantsFiles = batch.form === "openai";
  const write = async (which: "output" | "errors") => {
    const file = await writeFile(context, batch, which);
    written.push(file);
    return file;
  };
  const output = wantsFiles && batch.succeeded > 0 ? await write("output") : null;
  const hasErrors = batch.errored + batch.canceled + batch.expired > 0;
  const errors = wantsFiles && hasErrors ? await write("errors") : null;
  reachedBatchStep("finish.files");
  return await pool.transaction(async (transaction) => {
    const { rowCount } = await transaction.query(sql.unsafe`
      update batches set state = 'ended', worker = null, claim = null, ended_at = ${timestamp(clock.now())},
        output_file_id = ${output?.id ?? null}, error_file_id = ${errors?.id ?? null},
        outcome = case
          when cancel_initiated_at is not null then 'cancelled' when overdue then 'expired' else 'completed' end
      where id = ${batch.id} and state = 'finalizing' and claim = ${batch.claim}
    `);
    if (rowCount === 0) return false;
    for (const file of written) await showFile(transaction, file.id);
    if (!wantsFiles) await countResults(transaction, batch);
    reachedBatchStep("finish.written");
    return true;
  });
}

/** Deletes hidden files; those that a commit with a lost answer has shown stay. Never fails: the sweep finds the rest. */
async function discard({ files, log }: BatchContext, written: readonly StoredFile[]): Promise<void> {
  for (const file of written)
    await files.discardHidden(file).catch((error: unknown) => {
      log.warn({ err: error, file: file.id }, "a file of a batch that did not end yet is left to the sweep");
    });
}

/** Counts a message batch's storage anew: from its end on it stores results and no requests. */
async function countResults(transaction: CommonQueryMethods, { id, organizationId }: Batch): Promise<void> {
  const schema = z.object({ bytes: z.bigint().transform(Number) });
  const before = await transaction.oneFirst(sql.type(schema)`
    select stored_bytes as bytes from batches where id = ${id}
  `);
  const results = await transaction.oneFirst(sql.type(schema)`
    update batches set stored_bytes = (
      select coalesce(sum(octet_length(line)), 0) from batch_items where batch_id = ${id}
    ) where id = ${id} returning stored_bytes as bytes
  `);
  await countStorage(transaction, organizationId, { bytes: results - before, files: 0 });
}

async function writeFile(
  context: BatchContext,
  batch: Batch,
  which: "output" | "errors",
): Promise<StoredFile> {
  const { files, pool } = context;
  const filename = `${batch.id}_${which === "output" ? "output" : "error"}.jsonl`;
  const keptMs = batch.outputSeconds === null ? RETENTION_MS : batch.outputSeconds * 1000;
  return await files.create(
    batch.organizationId,
    resultLines(pool, batch, which),
    (now) => ({
      filename,
      mimeType: "application/jsonl",
      purpose: "batch_output",
      expiresAt: now + keptMs,
    }),
    { visibility: "hidden" },
  );
}
