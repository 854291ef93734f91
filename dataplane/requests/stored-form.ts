/** A record as the columns of `request_records` have it. Pure. */
import type { RequestRecord } from "../telemetry/request-record.ts";

/** What is null, none or nothing is left out: most requests say little, and it becomes null in its column. */
export function storedForm(record: RequestRecord) {
  const { tries, toolCalls, url } = record;
  return {
    id: record.id,
    accepted_at: new Date(record.acceptedAt).toISOString(),
    organization_id: record.organizationId ?? undefined,
    project_id: record.projectId ?? undefined,
    key_id: record.keyId ?? undefined,
    method: record.method,
    url: storable(url).slice(0, MAX_URL),
    dialect: record.dialect ?? undefined,
    path: record.path ?? undefined,
    model: record.model ?? undefined,
    upstream: record.upstream ?? undefined,
    status: record.status,
    error: record.error ?? undefined,
    error_code: record.errorCode ?? undefined,
    streamed: record.streamed || undefined,
    first_byte_ms: record.firstByteMs === null ? undefined : Math.round(record.firstByteMs),
    duration_ms: Math.round(record.durationMs),
    tries: tries.length === 0 ? undefined : tries.map(storedTry),
    input_tokens: record.inputTokens || undefined,
    output_tokens: record.outputTokens || undefined,
    credit_micros: record.micros === 0n ? undefined : record.micros.toString(),
    tool_calls: Object.keys(toolCalls).length === 0 ? undefined : toolCalls,
    batch_id: record.batchId ?? undefined,
    trace_id: record.traceId ?? undefined,
  };
}

/** A path may be as long as a request's head. */
const MAX_URL = 200;

function storedTry({ upstream, status, fault, reason, words, ms }: RequestRecord["tries"][number]) {
  return {
    upstream,
    status: status ?? undefined,
    fault: fault ?? undefined,
    reason: reason === null ? undefined : storable(reason),
    words: words === null ? undefined : storable(words),
    ms,
  };
}

/** What others wrote may hold what Postgres' text cannot. */
const storable = (text: string): string => text.replaceAll("\0", "").toWellFormed();
