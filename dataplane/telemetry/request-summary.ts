import type { Span } from "@opentelemetry/api";

/** One call to an upstream, for whoever asks why a request failed (rule 14.1). */
export interface Try {
  readonly upstream: string;
  /** The HTTP status of its answer; null: there was none. */
  status: number | null;
  /** What became of it, in a word that a tenant may read; null: it was answered. */
  fault: string | null;
  /**
   * More exactly, for the operator: an errno (`ECONNREFUSED`), TLS's reason (`CERT_HAS_EXPIRED`), what was wrong with the
   * answer (`html`, `not_json`, `empty`), or the code that the upstream gave.
   */
  reason: string | null;
  /** The upstream's own words, without keys and addresses; null: it had none, or they are about the client's request. */
  words: string | null;
  /** Until it was over, whichever way. */
  ms: number;
}

/** What a request was charged. */
export interface Charged {
  /** All of the input, read from a cache or not. */
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly micros: bigint;
}

/** So many calls of one request are remembered singly; a tool loop may make more. */
export const MAX_TRIES_KEPT = 100;

/**
 * What is learned about one request while it is served. Whoever learns something writes it here; `http` (or the
 * batch worker) turns it into the log line, the metrics and the span when the request is over. Never a key, a
 * body or, but for `askedModel` and `tags`, a client's own text.
 */
export interface RequestSummary {
  /** Public model id, set once a route was found: an unknown name never becomes a label. */
  model: string | null;
  /** As the client wrote it: for the record of a request that came to no route, never a label, a span or the request's line. */
  askedModel: string | null;
  /** The upstream that served the last iteration. */
  upstream: string | null;
  servingPath: "relay" | "convert" | "tools" | null;
  streamed: boolean;
  /** Milliseconds spent waiting for upstreams before the first byte of the answer. */
  upstreamWaitMs: number;
  /** Calls to upstreams, retries included. */
  tries: number;
  /** The first of them, one by one. */
  readonly calls: Try[];
  /** What it holds credit with; null: it was not admitted. */
  bill: { readonly charged: Charged | null } | null;
  /** Finished calls of server tools, by tool and outcome (`web_search ok`). */
  toolCalls: Map<string, number> | null;
  /** The tenant's own marks on it (lib/tags.ts); null: none. Never a label of a metric. */
  tags: string | null;
  /** Code of the error that the client was told, also in-band. */
  errorCode: string | null;
  /** Its serving has not come to its end: a client that left may have its answer read on. */
  serving: boolean;
  /** What is to be done then, where the connection ended before. */
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
