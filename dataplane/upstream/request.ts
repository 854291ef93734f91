/** A request to a route's upstreams, and the answer of one of them. */
import type { Span } from "@opentelemetry/api";
import type { Route, Upstream } from "../config/schema.ts";
import type { Own } from "../dialects/own-secrets.ts";
import type { Cancellation } from "../lib/cancellation.ts";
import type { Deadline } from "../lib/deadline.ts";
import type { RequestSummary } from "../telemetry/request-summary.ts";
import type { CallFault, UpstreamCall } from "./send.ts";

/** Body and headers for one upstream. */
export interface Outgoing {
  readonly body: Buffer;
  /** Headers besides content type, credentials and the route's own; names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface UpstreamRequest {
  readonly route: Route;
  readonly stream: boolean;
  /** Whether this is a batch item: only the request's time limit applies (service.md "Configuration"). */
  readonly batch: boolean;
  readonly deadline: Deadline;
  /** Cancelled when the client leaves: a call in progress is then drained (`UpstreamCall.drain`). */
  readonly closed: Cancellation;
  /** The request is never charged, so its call is not drained but ended when the client leaves. */
  readonly unbilled?: true;
  readonly summary: RequestSummary;
  /** Span of this call, passed to upstreams with `propagateTrace`; null or absent: not traced. */
  readonly span?: Span | null;
  readonly credential: (id: string) => string | undefined;
  /** Key of the conversation, which keeps it on one upstream; null: the upstream is chosen at random. */
  readonly conversation: string | null;
}

/** An answer with a 2xx status, whose body is read with `call`. */
export interface UpstreamAnswer {
  readonly upstream: Upstream;
  readonly call: UpstreamCall;
  /** Our address and account at this upstream, which no client may see. */
  readonly own: () => Own;
  /** We pause it: its request's time stands still meanwhile, as the upstream is not what is slow. */
  waitsFor(pause: Promise<void>): void;
  /** To be called as soon as the answer's first event, or the whole of it, is there: the upstream is well. */
  accepted(): void;
  /** Tells why an answer that had begun is none: it broke off, or makes no sense. */
  broke(fault: CallFault, reason?: string, words?: string | null): void;
}
