/**
 * The form in which a record is stored in `request_records`: its columns in their order, without names. There is one for each
 * request, and writing it is most of what records cost. Pure.
 */
import { dialectPath, type Dialect } from "../dialects/dialect.ts";
import { MOST_MODEL_NAME } from "../lib/names.ts";
import type { RequestRecord } from "../telemetry/request-record.ts";
import type { Try } from "../telemetry/request-summary.ts";

/** Characters of a URL that are stored: a path may be as long as a request's head. */
const MAX_URL = 200;

/** Returns the columns in the order of `request_records_of` (store/migrations/0006_requests.sql). `acceptedAt` is Unix milliseconds. */
export function storedForm(record: RequestRecord): readonly unknown[] {
  const { dialect, tries, toolCalls, firstByteMs, micros } = record;
  // The method and URL of an inference request follow from its dialect.
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
    // A double holds it exactly, as it does every balance (`MAX_MICROS`).
    Number(micros),
    toolCalls,
    record.batchId,
    record.traceId,
    record.tags,
  ];
}

/** Returns a try in short form: most succeed and need few fields. */
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

/** Removes what Postgres' text cannot hold from text that others wrote. */
const storable = (text: string): string => text.replaceAll("\0", "").toWellFormed();

/** Returns a model's name as records store it and are searched by it. */
export const storedModel = (name: string): string => storable(name.slice(0, MOST_MODEL_NAME));

/** Returns the method and URL of an inference request, which its row does not store. */
export const requestOf = (dialect: string): { readonly method: string; readonly url: string } => ({
  method: "POST",
  url: dialectPath[dialect as Dialect],
});
