/**
 * A record on its way into `request_records`: its columns in their order, without names. There is one for each request, and
 * what it costs to write it down is the price of keeping it. Pure.
 */
import { dialectPath, type Dialect } from "../dialects/dialect.ts";
import { MOST_MODEL_NAME } from "../lib/names.ts";
import type { RequestRecord } from "../telemetry/request-record.ts";
import type { Try } from "../telemetry/request-summary.ts";

/** A path may be as long as a request's head. */
const MAX_URL = 200;

/** In the order of `request_records_of` (store/migrations/0006_requests.sql). Times of acceptance are Unix milliseconds. */
export function storedForm(record: RequestRecord): readonly unknown[] {
  const { dialect, tries, toolCalls, firstByteMs, micros } = record;
  // Where inference is asked for is known by its dialect.
  const plain = dialect === null;
  return [
    record.id,
    record.acceptedAt,
    record.organizationId,
    record.projectId,
    record.keyId,
    plain ? record.method : null,
    plain ? storable(record.url).slice(0, MAX_URL) : null,
    dialect,
    record.path,
    record.model === null ? null : storedModel(record.model),
    record.upstream,
    record.status,
    record.error,
    record.errorCode,
    record.streamed,
    firstByteMs === null ? null : Math.round(firstByteMs),
    Math.round(record.durationMs),
    tries.length === 0 ? null : tries.map(storedTry),
    record.inputTokens,
    record.outputTokens,
    // Within what a double holds exactly, as every balance is (`MAX_MICROS`).
    Number(micros),
    toolCalls,
    record.batchId,
    record.traceId,
    record.tags,
  ];
}

/** Most tries went well, and say little. */
function storedTry(one: Try): object {
  const { upstream, status, fault, reason, words, ms } = one;
  if (fault === null) return { upstream, status, ms };
  return {
    upstream,
    status,
    fault,
    reason: reason === null ? null : storable(reason),
    words: words === null ? null : storable(words),
    ms,
  };
}

/** What others wrote may hold what Postgres' text cannot. */
const storable = (text: string): string => text.replaceAll("\0", "").toWellFormed();

/** A model's name as records hold it, and as they are looked for by it. */
export const storedModel = (name: string): string => storable(name.slice(0, MOST_MODEL_NAME));

/** How a request for inference came; its row does not say. */
export const requestOf = (dialect: string): { readonly method: string; readonly url: string } => ({
  method: "POST",
  url: dialectPath[dialect as Dialect],
});
