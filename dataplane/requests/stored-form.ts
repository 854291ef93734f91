/**
 * A record on its way into `request_records`: its columns in their order, without names. There is one for each request, and
 * what it costs to write it down is the price of keeping it. Pure.
 */
import { dialectPath, type Dialect } from "../dialects/dialect.ts";
import type { RequestRecord } from "../telemetry/request-record.ts";
import type { Try } from "../telemetry/request-summary.ts";

/** Columns and their types, in the order of `storedForm`. */
export const storedColumns = [
  ["id", "text"],
  ["accepted_at", "timestamptz"],
  ["organization_id", "text"],
  ["project_id", "text"],
  ["key_id", "text"],
  ["method", "text"],
  ["url", "text"],
  ["dialect", "text"],
  ["path", "text"],
  ["model", "text"],
  ["upstream", "text"],
  ["status", "int4"],
  ["error", "text"],
  ["error_code", "text"],
  ["streamed", "bool"],
  ["first_byte_ms", "int4"],
  ["duration_ms", "int4"],
  ["tries", "jsonb"],
  ["input_tokens", "int8"],
  ["output_tokens", "int8"],
  ["credit_micros", "int8"],
  ["tool_calls", "jsonb"],
  ["batch_id", "text"],
  ["trace_id", "text"],
  ["tags", "text"],
] as const satisfies readonly (readonly [
  string,
  "text" | "int4" | "int8" | "bool" | "jsonb" | "timestamptz",
])[];

/** A path may be as long as a request's head. */
const MAX_URL = 200;

/** Times of acceptance are Unix milliseconds. */
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
    record.model,
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

/** How a request for inference came; its row does not say. */
export const requestOf = (dialect: string): { readonly method: string; readonly url: string } => ({
  method: "POST",
  url: dialectPath[dialect as Dialect],
});
