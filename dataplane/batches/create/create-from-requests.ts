/** Makes a message batch out of a body while it is being received. */
import { sql } from "slonik";
import type { Principal } from "../../identity/principal.ts";
import { countStorage, givingBack, requireStorage, Room } from "../../files/storage.ts";
import { ApiError } from "../../lib/api-error.ts";
import type { ByteLease } from "../../lib/byte-budget.ts";
import { readJsonFields, type FieldsRead } from "../../lib/json-fields.ts";
import { poolInTurns } from "../../store/pool-turns.ts";
import { timestamp } from "../../store/timestamp.ts";
import { batchColumns, batchSchema, MAX_ITEM_BYTES, MAX_REQUESTS, WINDOW_MS, type Batch } from "../batch.ts";
import { DistinctTexts } from "./distinct-texts.ts";
import { requireBalance, type BatchContext } from "../context.ts";
import { ItemWriter, removeItems, type NewItem } from "./items.ts";
import { readEnvelope } from "./read-envelope.ts";
import { requestTooLarge, scanRequests } from "./scan-requests.ts";
import { reachedBatchStep } from "../steps.ts";
import { takePlace } from "./take-place.ts";

/**
 * Stores the requests as they arrive; the batch is visible only after the last one. Bytes that wait to be stored are
 * counted in `lease`.
 * @throws ApiError 402 without credit; as `takePlace`; 400 `storage_limit_reached`; 400 and 413 for what can be judged without running
 * anything (rule 4.7): shape, count, size, `custom_id`. Nothing is stored then. Whatever `source` and `lease` throw.
 */
export async function createFromRequests(
  context: BatchContext,
  principal: Principal,
  headers: Readonly<Record<string, string>>,
  source: AsyncIterable<Buffer>,
  lease: Pick<ByteLease, "hold">,
): Promise<Batch> {
  const { files, clock, newId, workerId, creating, wake } = context;
  const { organizationId } = principal;
  const pool = poolInTurns(context.pool, organizationId);
  await requireBalance(context, organizationId);
  const limits = files.limitsOf(organizationId);
  // The size is known only as the body arrives; where there is no room at all nothing is read.
  await requireStorage(pool, organizationId, { bytes: 1, files: 0 }, limits);
  const id = newId("msgbatch");
  const begun = clock.now();
  creating.add(id);
  try {
    await pool.transaction(async (transaction) => {
      await transaction.query(sql.unsafe`
        insert into batches (id, organization_id, project_id, key_id, form, dialect, state, headers, created_at, expires_at, worker)
        values (${id}, ${principal.organizationId}, ${principal.projectId ?? ""}, ${principal.keyId}, 'messages', 'messages',
          'creating', ${JSON.stringify(headers)}, ${timestamp(begun)}, ${timestamp(begun + WINDOW_MS)}, ${workerId})
      `);
      await takePlace(transaction, organizationId);
    });
    const room = new Room(pool, { kind: "batch", id, organizationId }, limits);
    const writer = new ItemWriter(pool, { id, state: "creating", claim: null }, newId, begun, room);
    await storeRequests(context, principal, source, writer, lease);
    reachedBatchStep("create.stored");
    const now = clock.now();
    const batch = await pool.transaction(async (transaction) => {
      const begunBatch = await transaction.one(sql.type(batchSchema)`
        update batches batch
        set state = 'in_progress', total = ${writer.count}, model = ${writer.model}, models = ${writer.models}, worker = null,
          position = nextval('batches_position'), created_at = ${timestamp(now)}, expires_at = ${timestamp(now + WINDOW_MS)},
          in_progress_at = ${timestamp(now)}, stored_bytes = ${writer.bytes}
        where id = ${id} and state = 'creating'
        returning ${batchColumns}
      `);
      const bytes = writer.bytes - room.taken;
      if (bytes !== 0) await countStorage(transaction, organizationId, { bytes, files: 0 });
      return begunBatch;
    });
    wake();
    return batch;
  } catch (error) {
    // What cannot be cleared now, because the store is away, is swept later.
    await discardBatch(context, id).catch(() => undefined);
    throw error;
  } finally {
    creating.delete(id);
  }
}

async function storeRequests(
  context: BatchContext,
  principal: Principal,
  source: AsyncIterable<Buffer>,
  writer: ItemWriter,
  lease: Pick<ByteLease, "hold">,
): Promise<void> {
  const customIds = new DistinctTexts();
  const count = (pieceBytes: number) => lease.hold(pieceBytes + writer.waitingBytes);
  for await (const element of scanRequests(source, count)) {
    const index = writer.count;
    if (index >= MAX_REQUESTS) {
      throw new ApiError(
        "invalid_value",
        `requests: List should have at most ${MAX_REQUESTS} items after validation`,
        { param: "requests" },
      );
    }
    const { bytes, read } = await readEnvelope(context, principal.organizationId, element, requestFields);
    await writer.add(readBatchRequest(bytes, index, customIds, read));
  }
  if (writer.count === 0) {
    throw new ApiError("invalid_value", "requests: List should have at least 1 item after validation", {
      param: "requests",
    });
  }
  await writer.flush();
}

const requestFields = ["custom_id", "params"] as const;

/** Whether a message batch allows the id. `"a\n"` is refused (rule 4.7): without `m`, `$` matches only the very end. */
const isMessagesCustomId = (id: string): boolean => /^[A-Za-z0-9_-]{1,64}$/.test(id);

/**
 * Checks one element of `requests`.
 * @param read the result of `readJsonFields` for `requestFields`; long elements are read in another thread.
 * @throws ApiError 400 naming the field; 413. The contents of `params` are checked when the item runs.
 */
export function readBatchRequest(
  element: Buffer,
  index: number,
  customIds: DistinctTexts,
  read: FieldsRead = readJsonFields(element, requestFields),
): NewItem {
  const path = `requests.${index}`;
  if (read.fault !== null) {
    const what = read.fault.kind === "syntax" ? "The request body is not valid JSON" : "The request body";
    throw new ApiError("invalid_request", `${what}: ${path}: ${read.fault.message}.`, { param: path });
  }
  if (!read.isObject) throw fault("invalid_type", path, "Input should be an object");
  const { custom_id: named, params } = read.fields;
  if (named === undefined) throw fault("missing_parameter", `${path}.custom_id`, "Field required");
  if (named.kind !== "string")
    throw fault("invalid_type", `${path}.custom_id`, "Input should be a valid string");
  const customId = named.text;
  // A string without `text` is longer than any allowed id.
  if (customId === undefined || !isMessagesCustomId(customId)) {
    throw fault("invalid_value", `${path}.custom_id`, "String should match pattern '^[a-zA-Z0-9_-]{1,64}$'");
  }
  if (params === undefined) throw fault("missing_parameter", `${path}.params`, "Field required");
  if (params.kind !== "object") throw fault("invalid_type", `${path}.params`, "Input should be an object");
  if (params.end - params.start > MAX_ITEM_BYTES) throw requestTooLarge(index);
  if (!customIds.add(customId)) {
    throw fault(
      "invalid_value",
      `${path}.custom_id`,
      `"${customId}" is used by an earlier request of this batch`,
    );
  }
  const body = element.subarray(params.start, params.end);
  return { customId: JSON.stringify(customId), body, model: params.model };
}

const fault = (
  code: "missing_parameter" | "invalid_type" | "invalid_value",
  param: string,
  message: string,
) => new ApiError(code, `${param}: ${message}`, { param });

/** Removes a batch that was never shown. If its last commit succeeded and only the answer was lost, it stays. */
export async function discardBatch({ pool }: BatchContext, id: string): Promise<void> {
  await pool.transaction(async (transaction) => {
    const { rowCount } = await transaction.query(sql.unsafe`
      select from batches where id = ${id} and state = 'creating' for update
    `);
    if (rowCount === 0) return;
    await removeItems(transaction, id);
    await transaction.query(sql.unsafe`
      with gone as (
        delete from batches where id = ${id} returning organization_id, stored_bytes
      ), ${givingBack(sql.fragment`gone`, 0, 1)}
      select from gone
    `);
  });
}
