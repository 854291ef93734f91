/** The line of the log that tells of one request over HTTP. */
import type { RequestRecord } from "./request-record.ts";

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
export function requestLine(facts: RequestFacts, record: RequestRecord): object {
  const { model } = record;
  return {
    id: facts.id,
    method: facts.method,
    path: facts.path,
    status: facts.status,
    ms: Math.round(facts.seconds * 1e4) / 10,
    org: facts.organizationId,
    keyId: facts.keyId,
    model: model ?? undefined,
    upstream: model === null ? undefined : record.upstream,
    way: model === null ? undefined : record.path,
    tries: record.tries > 1 ? record.tries : undefined,
    streamed: record.streamed || undefined,
    error: record.errorCode ?? undefined,
    client: facts.clientId,
  };
}
