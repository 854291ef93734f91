/**
 * Reads a batch's input file: line by line into items, or into the errors for which none of it runs (rule 4.10).
 * Any worker may do it; one that dies on the way leaves rows that the next one deletes first.
 */
import { sql } from "slonik";
import { z } from "zod";
import { countStorage } from "../../files/storage.ts";
import { ApiError } from "../../lib/api-error.ts";
import { BODY_LIMIT } from "../../lib/body-limits.ts";
import type { ByteLease } from "../../lib/byte-budget.ts";
import { ANSWER_SLICE_MS, Slices } from "../../lib/slices.ts";
import { timestamp } from "../../store/timestamp.ts";
import { MAX_BATCH_BYTES, MAX_ITEM_BYTES, MAX_REQUESTS, type Batch } from "../batch.ts";
import { checkLine, lineError, lineFields, lineText, type InputError } from "./check-line.ts";
import { DistinctTexts } from "./distinct-texts.ts";
import type { BatchContext } from "../context.ts";
import { endWaiting } from "../counts.ts";
import { ItemWriter, removeItems } from "./items.ts";
import { readLines } from "./read-lines.ts";
import { readEnvelope } from "./read-envelope.ts";
import { reachedBatchStep } from "../steps.ts";

/** Room for the other fields around a request of the largest size. */
const MAX_LINE_BYTES = MAX_ITEM_BYTES + 1024 * 1024;
/** Errors that are listed at most; reading stops there. */
const MAX_ERRORS = 1_000;

/** Reads the input of a batch that this worker has in state `validating`. A cancel that came meanwhile stands (rule 4.11). */
export async function validate(context: BatchContext, batch: Batch): Promise<void> {
  const { pool } = context;
  if (!(await clearEarlierTry(context, batch))) return;
  const writer = new ItemWriter(pool, batch, context.newId, batch.createdAt);
  const errors = await readInput(context, batch, writer);
  reachedBatchStep("validate.stored");
  if (errors.length === 0) await begin(context, batch, writer);
  // Stored items are left to the sweep: if this worker was taken for dead, they may be another worker's by now.
  else await fail(context, batch, errors);
  reachedBatchStep("validate.done");
}

/** Deletes an earlier try's items; the lock keeps the batch this worker's meanwhile. @returns whether it still was. */
async function clearEarlierTry({ pool }: BatchContext, { id, claim }: Batch): Promise<boolean> {
  return await pool.transaction(async (transaction) => {
    const { rowCount } = await transaction.query(sql.unsafe`
      select from batches where id = ${id} and state = 'validating' and claim = ${claim} for update
    `);
    if (rowCount > 0) await removeItems(transaction, id);
    return rowCount > 0;
  });
}

async function begin(
  { pool, clock, wake }: BatchContext,
  { id, claim }: Batch,
  writer: ItemWriter,
): Promise<void> {
  await pool.transaction(async (transaction) => {
    const cancelled = await transaction.maybeOneFirst(sql.type(z.object({ cancelled: z.boolean() }))`
      update batches set state = 'in_progress', total = ${writer.count}, model = ${writer.model}, models = ${writer.models},
        worker = null, claim = null,
        in_progress_at = case when cancel_initiated_at is null then ${timestamp(clock.now())} end
      where id = ${id} and state = 'validating' and claim = ${claim}
      returning cancel_initiated_at is not null as cancelled
    `);
    if (cancelled === true) await endWaiting(transaction, id, "canceled");
  });
  wake();
}

async function fail(
  { pool, clock }: BatchContext,
  { id, claim, organizationId }: Batch,
  errors: InputError[],
): Promise<void> {
  const text = JSON.stringify(errors);
  const bytes = Buffer.byteLength(text);
  await pool.transaction(async (transaction) => {
    const { rowCount } = await transaction.query(sql.unsafe`
      update batches set state = 'ended', worker = null, claim = null, ended_at = ${timestamp(clock.now())}, errors = ${text},
        outcome = case when cancel_initiated_at is null then 'failed' else 'cancelled' end, stored_bytes = stored_bytes + ${bytes}
      where id = ${id} and state = 'validating' and claim = ${claim}
    `);
    if (rowCount > 0) await countStorage(transaction, organizationId, { bytes, files: 0 });
  });
}

async function readInput(context: BatchContext, batch: Batch, writer: ItemWriter): Promise<InputError[]> {
  const held = context.bodies.lease(batch.organizationId);
  try {
    const file = await context.files.get(batch.organizationId, batch.inputFileId ?? "");
    if (file.sizeBytes <= MAX_BATCH_BYTES)
      return await readRequests(context, batch, context.files.read(file), { writer, held });
    return ofFile(
      "input_file_too_large",
      `The input file is larger than ${MAX_BATCH_BYTES / 1024 ** 2} MiB.`,
    );
  } catch (error) {
    // Deleted or expired since the batch was made.
    if (!(error instanceof ApiError) || error.kind.status !== 404) throw error;
    return ofFile("input_file_not_found", "The input file no longer exists.");
  } finally {
    held.release();
  }
}

const ofFile = (code: string, message: string): InputError[] => [
  { code, message, param: "input_file_id", line: null },
];

/** @param held counts the bytes that are in memory. */
async function readRequests(
  context: BatchContext,
  { organizationId, dialect }: Batch,
  source: AsyncIterable<Buffer>,
  { writer, held }: { readonly writer: ItemWriter; readonly held: ByteLease },
): Promise<InputError[]> {
  const errors: InputError[] = [];
  const customIds = new DistinctTexts();
  let requests = 0;
  // Thousands of short lines come at once, and reading on waits for nothing else.
  const slices = new Slices(ANSWER_SLICE_MS);
  for await (const { number, bytes } of readLines(source, MAX_LINE_BYTES)) {
    if (slices.usedUp) await slices.pause();
    if (bytes === null) {
      errors.push(lineError(number, "request_too_large", `The line is larger than ${BODY_LIMIT}.`, "body"));
      continue;
    }
    // Counted without waiting for room: these bytes are in memory already, and leave less room for others.
    held.release();
    held.count(bytes.length + writer.waitingBytes);
    const line = await readEnvelope(context, organizationId, lineText(bytes, number), lineFields);
    const checked = checkLine(line.bytes, number, dialect, customIds, line.read);
    if (checked.kind === "blank") continue;
    requests += 1;
    if (requests > MAX_REQUESTS) {
      const message = `A batch may have at most ${MAX_REQUESTS} requests.`;
      errors.push(lineError(number, "too_many_requests_in_batch", message));
      break;
    }
    if (checked.kind === "invalid") errors.push(checked.error);
    // After a bad line nothing will run: further lines are only checked.
    else if (errors.length === 0) await writer.add(checked.item);
    if (errors.length >= MAX_ERRORS) break;
  }
  if (requests === 0 && errors.length === 0) return ofFile("empty_file", "The input file has no requests.");
  if (errors.length === 0) await writer.flush();
  return errors;
}
