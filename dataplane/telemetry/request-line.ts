/** The log line of one HTTP request. */
import type { RequestSummary } from "./request-summary.ts";

/** The HTTP side of the request; neither its key nor any of its body. */
export interface RequestFacts {
  readonly id: string;
  readonly method: string;
  /** Keys in the URL are masked. */
  readonly path: string;
  readonly status: number;
  readonly seconds: number;
  readonly organizationId: string | undefined;
  readonly keyId: string | undefined;
  /** The client's own request id, sanitized for the log. */
  readonly clientId: string | undefined;
}

/** Builds the log line; members without a value are left out. */
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
    reason: last?.reason ?? last?.fault ?? undefined,
    streamed: summary.streamed || undefined,
    error: summary.errorCode ?? undefined,
    client: facts.clientId,
  };
}
