import type { Span } from "@opentelemetry/api";

/** One call to an upstream, kept to explain later why a request failed (rule 14.1). */
export interface Try {
  readonly upstream: string;
  /** HTTP status of the answer; null: there was no answer. */
  status: number | null;
  /** Kind of failure, in a word that tenants may see; null: the upstream answered. */
  fault: string | null;
  /**
   * The exact cause, for the operator: an errno (`ECONNREFUSED`), a TLS error (`CERT_HAS_EXPIRED`), what was wrong with the
   * answer (`html`, `not_json`, `empty`), or the upstream's own error code.
   */
  reason: string | null;
  /** The upstream's error message without keys and addresses; null: there was none, or it is about the client's request. */
  words: string | null;
  /** Duration of the call, however it ended. */
  ms: number;
}

/** Tokens and credits that a request was charged. */
export interface Charged {
  /** All input tokens, cached ones included. */
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly micros: bigint;
}

/** Most calls of one request that are kept one by one; a tool loop may make more. */
export const MAX_TRIES_KEPT = 100;

/**
 * What is learned about one request while it is served. Each part of the data plane writes here what it learns; `http` (or
 * the batch worker) makes the log line, the metrics and the span of it when the request is over. It never holds a key, a
 * body or, except for `askedModel` and `tags`, text from a client.
 */
export interface RequestSummary {
  /** Public model id, set once a route is found, so that an unknown name never becomes a label. */
  model: string | null;
  /** The model as the client named it. Only the record of a request without a route shows it; never a label, a span or the log. */
  askedModel: string | null;
  /** The upstream that served the last iteration. */
  upstream: string | null;
  servingPath: "relay" | "convert" | "tools" | null;
  streamed: boolean;
  /** Milliseconds spent waiting for upstreams before the first byte of the answer. */
  upstreamWaitMs: number;
  /** Calls to upstreams, retries included. */
  tries: number;
  /** The first `MAX_TRIES_KEPT` of them. */
  readonly calls: Try[];
  /** The request's hold and charge; null: it was not admitted. */
  bill: { readonly charged: Charged | null } | null;
  /** Finished calls of server tools, by tool and outcome (`web_search ok`). */
  toolCalls: Map<string, number> | null;
  /** The tenant's tags (lib/tags.ts); null: none. Never a label of a metric. */
  tags: string | null;
  /** Code of the error that the client received, by status or in-band. */
  errorCode: string | null;
  /** True until serving is over. After a client has disconnected its upstream answer may still be read. */
  serving: boolean;
  /** Called when serving is over, if the connection ended before. */
  served: (() => void) | null;
  /** The request's span; null when tracing is off. */
  readonly span: Span | null;
}

export const newRequestSummary = (span: Span | null): RequestSummary => ({
  model: null,
  askedModel: null,
  upstream: null,
  servingPath: null,
  streamed: false,
  upstreamWaitMs: 0,
  tries: 0,
  calls: [],
  bill: null,
  toolCalls: null,
  tags: null,
  errorCode: null,
  serving: false,
  served: null,
  span,
});
