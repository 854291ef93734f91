/** The line of the log that tells of one request over HTTP. */
import type { RequestSummary } from "./request-summary.ts";

/** What HTTP knows of it; no key and nothing of the body. */
export interface RequestFacts {
  readonly id: string;
  readonly method: string;
  /** Without a key that stands in it. */
  readonly path: string;
  readonly status: number;
  readonly seconds: number;
  readonly organizationId: string | undefined;
  readonly keyId: string | undefined;
  /** The caller's own id, in the form in which it may be logged. */
  readonly clientId: string | undefined;
}

/** Members without a value are left out of the line. */
export function requestLine(facts: RequestFacts, summary: RequestSummary): object {
  const { model } = summary;
  const last = summary.calls.at(-1);
  return {
    request_id: facts.id,
    trace_id: summary.span?.spanContext().traceId,
    method: facts.method,
    path: facts.path,
    status: facts.status,
    ms: Math.round(facts.seconds * 1e4) / 10,
    org: facts.organizationId,
    keyId: facts.keyId,
    model: model ?? undefined,
    upstream: model === null ? undefined : summary.upstream,
    servingPath: model === null ? undefined : summary.servingPath,
    tries: summary.tries > 0 ? summary.tries : undefined,
    upstream_status: last?.status ?? undefined,
    reason: last?.reason ?? undefined,
    streamed: summary.streamed || undefined,
    error: summary.errorCode ?? undefined,
    client: facts.clientId,
  };
}
