import type { Span } from "@opentelemetry/api";

/**
 * What is learned about one request while it is served. Whoever learns something writes it here; `http` (or the
 * batch worker) turns it into the log line, the metrics and the span when the request is over. Never a key, a
 * body or a client's own text.
 */
export interface RequestSummary {
  /** Public model id, set once a route was found: an unknown name never becomes a label. */
  model: string | null;
  /** The upstream that served the last iteration. */
  upstream: string | null;
  servingPath: "relay" | "convert" | "tools" | null;
  streamed: boolean;
  /** Milliseconds spent waiting for upstreams before the first byte of the answer. */
  upstreamWaitMs: number;
  /** Calls to upstreams, retries included. */
  tries: number;
  /** Code of the error that the client was told, also in-band. */
  errorCode: string | null;
  /** The request's span; null when tracing is off. */
  readonly span: Span | null;
}

export const newRequestSummary = (span: Span | null): RequestSummary => ({
  model: null,
  upstream: null,
  servingPath: null,
  streamed: false,
  upstreamWaitMs: 0,
  tries: 0,
  errorCode: null,
  span,
});
