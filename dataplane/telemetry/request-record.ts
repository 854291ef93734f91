/** What is kept of one request for whoever asks later why it failed, and who spends (rule 14.1). */
import { errorKinds, type ErrorCode } from "../lib/api-error.ts";
import type { RequestSummary, Try } from "./request-summary.ts";

export interface RequestRecord {
  readonly id: string;
  /** Unix milliseconds. */
  readonly acceptedAt: number;
  /** null: no valid key came with it. */
  readonly organizationId: string | null;
  readonly projectId: string | null;
  readonly keyId: string | null;
  readonly method: string;
  /** Of the URL, without query and keys. */
  readonly url: string;
  /** null: it asked for no inference. */
  readonly dialect: string | null;
  readonly path: RequestSummary["servingPath"];
  /** Public id; where none was found, the name that was asked for; null: none is known. */
  readonly model: string | null;
  /** The one that was asked last. */
  readonly upstream: string | null;
  /** 499: the client left before the end. */
  readonly status: number;
  /** Of our own table of errors. */
  readonly error: string | null;
  /** The same as OpenAI-style answers name it, in every dialect. */
  readonly errorCode: string | null;
  readonly streamed: boolean;
  readonly firstByteMs: number | null;
  readonly durationMs: number;
  readonly tries: readonly Try[];
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Micro-credits. */
  readonly micros: bigint;
  /** By tool and outcome; null: none was called. */
  readonly toolCalls: Readonly<Record<string, number>> | null;
  readonly batchId: string | null;
  readonly traceId: string | null;
  /** The tenant's own marks (lib/tags.ts); null: none. */
  readonly tags: string | null;
}

/** Whoever keeps records. */
export interface RequestRecords {
  /** Takes no time, and never fails: what cannot be kept is counted and forgotten. */
  add(record: RequestRecord): void;
}

/** What is known of a request beside what was learned while it was served. */
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

/** Field by field: there is one for each request, and V8 copies an object that is spread bit by bit. */
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

/** The type stands in for a code where the contract has none. */
function openaiCode(error: string): string {
  const kind = Object.hasOwn(errorKinds, error) ? errorKinds[error as ErrorCode] : errorKinds.internal;
  return kind.openaiCode ?? kind.openaiType;
}
