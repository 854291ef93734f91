/**
 * Ends batches whose last item is over. The files of the Chat/Responses form are written hidden and shown in the
 * transaction that sets the final status; a worker that dies before it leaves files that nobody sees.
 */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { showFile, type StoredFile } from "../files/catalog.ts";
import { countStorage } from "../files/storage.ts";
import { allCounted, correctCounts, nothingLeft } from "./counts.ts";
import { at, batchColumns, batchSchema, RETENTION_MS, type Batch } from "./batch.ts";
import type { Engine } from "./engine.ts";
import type { Resting } from "./resting.ts";
import { resultLines } from "./results.ts";
import { reached } from "./steps.ts";
import { validate } from "./validate.ts";

/** Batches with nothing left to run get ready for their end. */
export async function closeFinished({ pool, clock }: Engine): Promise<void> {
  const { rowCount } = await pool.query(sql.unsafe`
    update batches batch set state = 'finalizing', finalizing_at = ${at(clock.now())}
    where state = 'in_progress' and ${allCounted} and ${nothingLeft}
  `);
  if (rowCount > 0) reached("close.done");
}

/** Reads one input or writes one batch's end, if there is one that no living worker is at. False: there was none. */
export async function workOnOne(engine: Engine, resting: Resting): Promise<boolean> {
  const { pool, clock, log } = engine;
  const batch = await pool.maybeOne(sql.type(batchSchema)`
    update batches batch set worker = ${engine.workerId}, claim = gen_random_uuid()
    where id = (
      select id from batches
      where state in ('validating', 'finalizing')
        -- What is this worker's own was taken for it by a statement whose answer never came.
        and (worker is null or worker = ${engine.workerId} or worker not in (select id from batch_workers))
        and not id = any(${sql.array(resting.ids(clock.now()), "text")})
      order by position limit 1 for update skip locked
    )
    returning ${batchColumns}
  `);
  if (batch === null) return false;
  try {
    if (batch.state === "validating") await validate(engine, batch);
    else await finish(engine, batch);
    resting.wentWell(batch.id);
  } catch (error) {
    log.warn({ err: error, batch: batch.id, state: batch.state }, "a batch could not be read or ended yet");
    resting.failed(batch.id, clock.now());
    await giveBack(engine, batch).catch(() => undefined);
  }
  return true;
}

async function giveBack({ pool }: Engine, { id, claim }: Batch): Promise<void> {
  await pool.query(
    sql.unsafe`update batches set worker = null, claim = null where id = ${id} and claim = ${claim}`,
  );
}

async function finish(engine: Engine, batch: Batch): Promise<void> {
  const { pool, clock } = engine;
  if (await correctCounts(engine, batch.id)) throw new Error("its counts were not those of its requests");
  const wantsFiles = batch.form === "openai";
  const output = wantsFiles && batch.succeeded > 0 ? await writeFile(engine, batch, "output") : null;
  const hasErrors = batch.errored + batch.canceled + batch.expired > 0;
  const errors = wantsFiles && hasErrors ? await writeFile(engine, batch, "errors") : null;
  reached("finish.files");
  await pool.transaction(async (transaction) => {
    const { rowCount } = await transaction.query(sql.unsafe`
      update batches set state = 'ended', worker = null, claim = null, ended_at = ${at(clock.now())},
        output_file_id = ${output?.id ?? null}, error_file_id = ${errors?.id ?? null},
        outcome = case
          when cancel_initiated_at is not null then 'cancelled' when overdue then 'expired' else 'completed' end
      where id = ${batch.id} and state = 'finalizing' and claim = ${batch.claim}
    `);
    // Somebody else took it for dead and ends it; the hidden files are swept.
    if (rowCount === 0) return;
    for (const file of [output, errors]) if (file !== null) await showFile(transaction, file.id);
    if (!wantsFiles) await countResults(transaction, batch);
    reached("finish.written");
  });
  reached("finish.done");
}

/** From here on a message batch keeps its results and no requests any more. */
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

async function writeFile(engine: Engine, batch: Batch, which: "output" | "errors"): Promise<StoredFile> {
  const { files, pool } = engine;
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
