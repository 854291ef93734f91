/** The record of a request, kept to answer later why it failed and who spends (rule 14.1). */
import { errorKinds, type ErrorCode } from "../lib/api-error.ts";
import type { RequestSummary, Try } from "./request-summary.ts";

export interface RequestRecord {
  readonly id: string;
  /** Unix milliseconds. */
  readonly acceptedAt: number;
  /** null: the request had no valid key. */
  readonly organizationId: string | null;
  readonly projectId: string | null;
  readonly keyId: string | null;
  readonly method: string;
  /** Path of the URL without its query; keys are masked. */
  readonly url: string;
  /** null: not an inference request. */
  readonly dialect: string | null;
  readonly path: RequestSummary["servingPath"];
  /** Public id of the route; without a route, the name that the client asked for; null: neither is known. */
  readonly model: string | null;
  /** The upstream that was called last. */
  readonly upstream: string | null;
  /** HTTP status; 499: the client disconnected before the end. */
  readonly status: number;
  /** Error code of `lib/api-error.ts`. */
  readonly error: string | null;
  /** The same error as OpenAI-style answers name it, whatever the client's dialect. */
  readonly errorCode: string | null;
  readonly streamed: boolean;
  readonly firstByteMs: number | null;
  readonly durationMs: number;
  readonly tries: readonly Try[];
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Micro-credits. */
  readonly micros: bigint;
  /** Number of calls by tool and outcome; null: no server tool was called. */
  readonly toolCalls: Readonly<Record<string, number>> | null;
  readonly batchId: string | null;
  readonly traceId: string | null;
  /** The tenant's tags (lib/tags.ts); null: none. */
  readonly tags: string | null;
}

/** Stores request records. */
export interface RequestRecords {
  /** Queues a record; returns at once and never throws. A record that cannot be kept is counted and dropped. */
  add(record: RequestRecord): void;
}

/** The part of a record that is known at the end of a request without its `RequestSummary`. */
export type RequestEnd = Pick<
  RequestRecord,
  | "id"
  | "acceptedAt"
  | "organizationId"
  | "projectId"
  | "keyId"
  | "method"
  | "url"
  | "dialect"
  | "status"
  | "firstByteMs"
  | "durationMs"
  | "batchId"
>;

/** Builds a record field by field: it is made for each request, and V8 copies a spread object slowly. */
export function requestRecord(end: RequestEnd, summary: RequestSummary): RequestRecord {
  const charged = summary.bill?.charged;
  const error = summary.errorCode;
  return {
    id: end.id,
    acceptedAt: end.acceptedAt,
    organizationId: end.organizationId,
    projectId: end.projectId,
    keyId: end.keyId,
    method: end.method,
    url: end.url,
    dialect: end.dialect,
    path: summary.model === null ? null : summary.servingPath,
    model: summary.model ?? summary.askedModel,
    upstream: summary.upstream,
    status: end.status,
    error,
    errorCode: error === null ? null : openaiCode(error),
    streamed: summary.streamed,
    firstByteMs: end.firstByteMs,
    durationMs: end.durationMs,
    tries: summary.calls,
    inputTokens: charged?.inputTokens ?? 0,
    outputTokens: charged?.outputTokens ?? 0,
    micros: charged?.micros ?? 0n,
    toolCalls: summary.toolCalls === null ? null : Object.fromEntries(summary.toolCalls),
    batchId: end.batchId,
    traceId: summary.span?.spanContext().traceId ?? null,
    tags: summary.tags,
  };
}

/** The OpenAI-style code of an error, or its type where the contract has no code. */
function openaiCode(error: string): string {
  const kind = Object.hasOwn(errorKinds, error) ? errorKinds[error as ErrorCode] : errorKinds.internal;
  return kind.openaiCode ?? kind.openaiType;
}
