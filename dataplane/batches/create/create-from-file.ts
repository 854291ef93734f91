/** Makes a batch that will read its requests from a file (Chat/Responses form). */
import { sql } from "slonik";
import type { Principal } from "../../identity/principal.ts";
import { dialectPath, type Dialect } from "../../dialects/dialect.ts";
import { fileNotFound } from "../../files/file-store.ts";
import { requireStorage, takeStorage } from "../../files/storage.ts";
import { ApiError } from "../../lib/api-error.ts";
import { codePoints } from "../../lib/code-points.ts";
import { firstUnits } from "../../lib/first-units.ts";
import { isObject } from "../../lib/json-object.ts";
import type { JsonObjectRead } from "../../lib/json-read.ts";
import { poolInTurns } from "../../store/pool-turns.ts";
import { timestamp } from "../../store/timestamp.ts";
import { batchColumns, batchSchema, WINDOW_MS, type Batch } from "../batch.ts";
import { requireBalance, type BatchContext } from "../context.ts";
import { takePlace } from "./take-place.ts";

const MAX_METADATA_PAIRS = 16;
/** In characters, as the official API counts them: one outside of the Basic Multilingual Plane is one. */
const MAX_METADATA_KEY = 64;
const MAX_METADATA_VALUE = 512;
const MIN_OUTPUT_SECONDS = 3_600;
const MAX_OUTPUT_SECONDS = 30 * 24 * 3_600;

export interface FileBatchRequest {
  readonly inputFileId: string;
  readonly dialect: Dialect;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly outputSeconds: number | null;
}

/**
 * Makes the batch in state `validating`; a worker reads its input.
 * @throws ApiError 402 without credit; as `takePlace`; 400 `storage_limit_reached`; 400 for an unknown, foreign or deleted input
 * file alike (rule 4.10).
 */
export async function createFromFile(
  context: BatchContext,
  principal: Principal,
  headers: Readonly<Record<string, string>>,
  request: FileBatchRequest,
): Promise<Batch> {
  const { files, clock, newId, wake } = context;
  const { organizationId, keyId, projectId } = principal;
  const pool = poolInTurns(context.pool, organizationId);
  await requireBalance(context, organizationId);
  const input = await files.get(organizationId, request.inputFileId).catch((error: unknown) => {
    if (!(error instanceof ApiError) || error.kind.status !== 404) throw error;
    const { message } = fileNotFound(request.inputFileId);
    throw new ApiError("invalid_value", message, { param: "input_file_id" });
  });
  const limits = files.limitsOf(organizationId);
  // Result files may have passed the limit of files, which `takeStorage` does not check where no file is added.
  await requireStorage(pool, organizationId, { bytes: 1, files: 0 }, limits);
  const now = clock.now();
  const metadata = request.metadata === null ? null : JSON.stringify(request.metadata);
  // The requests are copied out of the file, so they take no more than its size.
  const bytes = input.sizeBytes + Buffer.byteLength(metadata ?? "");
  const batch = await pool.transaction(async (transaction) => {
    const made = await transaction.one(sql.type(batchSchema)`
      insert into batches as batch (
        id, organization_id, project_id, key_id, form, dialect, state, headers, metadata, input_file_id,
        output_seconds, created_at, expires_at, stored_bytes
      ) values (
        ${newId("batch")}, ${organizationId}, ${projectId ?? ""}, ${keyId}, 'openai', ${request.dialect}, 'validating',
        ${JSON.stringify(headers)}, ${metadata}, ${request.inputFileId}, ${request.outputSeconds}, ${timestamp(now)},
        ${timestamp(now + WINDOW_MS)}, ${bytes}
      )
      returning ${batchColumns}
    `);
    await takeStorage(transaction, organizationId, { bytes, files: 0 }, limits);
    await takePlace(transaction, organizationId);
    return made;
  });
  wake();
  return batch;
}

/** @throws ApiError 400 naming the field. */
export function readFileBatchRequest(body: JsonObjectRead): FileBatchRequest {
  const inputFileId = requiredText(body, "input_file_id");
  const endpoint = requiredText(body, "endpoint");
  const dialect = (["chat", "responses"] as const).find((known) => dialectPath[known] === endpoint);
  if (dialect === undefined) {
    throw new ApiError("invalid_value", "endpoint must be /v1/chat/completions or /v1/responses.", {
      param: "endpoint",
    });
  }
  if (requiredText(body, "completion_window") !== "24h") {
    throw new ApiError("invalid_value", "completion_window must be 24h.", { param: "completion_window" });
  }
  return {
    inputFileId,
    dialect,
    metadata: readMetadata(body["metadata"] ?? null),
    outputSeconds: readOutputSeconds(body["output_expires_after"] ?? null),
  };
}

/** `param`: its whole path. @throws ApiError 400 where it is absent or null. */
function required(body: JsonObjectRead, name: string, param: string): unknown {
  const value = body[name] ?? null;
  if (value === null)
    throw new ApiError("missing_parameter", `Missing required parameter: '${param}'.`, { param });
  return value;
}

function requiredText(body: JsonObjectRead, name: string, param = name): string {
  const value = required(body, name, param);
  if (typeof value !== "string") throw new ApiError("invalid_type", `${param} must be a string.`, { param });
  return value;
}

function readMetadata(value: unknown): Record<string, string> | null {
  if (value === null) return null;
  const refuse = (message: string, param = "metadata") => new ApiError("invalid_value", message, { param });
  if (typeof value !== "object" || Array.isArray(value)) {
    throw new ApiError("invalid_type", "metadata must be an object of strings.", { param: "metadata" });
  }
  const pairs = Object.entries(value);
  if (pairs.length > MAX_METADATA_PAIRS)
    throw refuse(`metadata may have at most ${MAX_METADATA_PAIRS} pairs.`);
  for (const [key, text] of pairs) {
    const param = `metadata.${firstUnits(key, MAX_METADATA_KEY)}`;
    if (key === "" || codePoints(key) > MAX_METADATA_KEY) {
      throw refuse(`A key of metadata has 1 to ${MAX_METADATA_KEY} characters.`, param);
    }
    const words = `A value of metadata is a string of at most ${MAX_METADATA_VALUE} characters.`;
    if (typeof text !== "string") throw new ApiError("invalid_type", words, { param });
    if (codePoints(text) > MAX_METADATA_VALUE) throw refuse(words, param);
  }
  // Not copied: a copy by assignment would lose a pair named __proto__.
  return value as Record<string, string>;
}

function readOutputSeconds(value: unknown): number | null {
  if (value === null) return null;
  const param = "output_expires_after";
  if (!isObject(value)) throw new ApiError("invalid_type", `${param} must be an object.`, { param });
  if (requiredText(value, "anchor", `${param}.anchor`) !== "created_at") {
    throw new ApiError("invalid_value", `${param}.anchor must be created_at.`, { param: `${param}.anchor` });
  }
  const seconds = required(value, "seconds", `${param}.seconds`);
  const isWhole = Number.isInteger(seconds);
  if (isWhole && Number(seconds) >= MIN_OUTPUT_SECONDS && Number(seconds) <= MAX_OUTPUT_SECONDS)
    return Number(seconds);
  throw new ApiError(
    isWhole ? "invalid_value" : "invalid_type",
    `${param}.seconds must be an integer from ${MIN_OUTPUT_SECONDS} to ${MAX_OUTPUT_SECONDS}.`,
    { param: `${param}.seconds` },
  );
}
