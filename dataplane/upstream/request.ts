/** What is asked of a route's upstreams, and what one of them answers. */
import type { Span } from "@opentelemetry/api";
import type { Route, Upstream } from "../config/schema.ts";
import type { Own } from "../dialects/own-secrets.ts";
import type { Cancellation } from "../lib/cancellation.ts";
import type { Deadline } from "../lib/deadline.ts";
import type { RequestSummary } from "../telemetry/request-summary.ts";
import type { CallFault, UpstreamCall } from "./send.ts";

/** What one candidate is sent. */
export interface Outgoing {
  readonly body: Buffer;
  /** Beside content type, credentials and the route's own headers; names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface UpstreamRequest {
  readonly route: Route;
  readonly stream: boolean;
  /** Items of a batch are bounded by the request's time alone (service.md "Configuration"). */
  readonly batch: boolean;
  readonly deadline: Deadline;
  /** Aborted when the client is gone: a call under way is drained then (`UpstreamCall.drain`). */
  readonly closed: Cancellation;
  /** Never charged: a call that nobody waits for any more ends at once. */
  readonly unbilled?: true;
  readonly summary: RequestSummary;
  /** Of this call, for upstreams that are told of it; null or absent: nothing is traced. */
  readonly span?: Span | null;
  readonly credential: (id: string) => string | undefined;
  /** What keeps a conversation on its upstream; null: nothing does, and any may get it. */
  readonly conversation: string | null;
}

/** An answer with a 2xx status, whose body is read with `call`. */
export interface UpstreamAnswer {
  readonly upstream: Upstream;
  readonly call: UpstreamCall;
  /** What of ours there no client may see. */
  readonly own: () => Own;
  /** To be called as soon as the answer's first event, or the whole of it, is there: the upstream is well. */
  accepted(): void;
  /** Tells why an answer that had begun is none: it broke off, or makes no sense. */
  broke(fault: CallFault, reason?: string): void;
}
