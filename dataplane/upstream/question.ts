/** What is asked of a route's upstreams, and who answers it. */
import type { Route, Upstream } from "../config/schema.ts";
import type { Cancellation } from "../lib/cancellation.ts";
import type { Deadline } from "../lib/deadline.ts";
import type { RequestRecord } from "../telemetry/request-record.ts";
import type { AnswerHead, UpstreamCall } from "./send.ts";

/** What one candidate is sent. */
export interface Outgoing {
  readonly body: Buffer;
  /** Beside content type, credentials and the route's own headers; names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface Question {
  readonly route: Route;
  readonly stream: boolean;
  /** Items of a batch are bounded by the request's time alone (resources.md, timeouts). */
  readonly batch: boolean;
  readonly deadline: Deadline;
  /** Aborted when the client is gone: a call under way is drained then (`UpstreamCall.drain`). */
  readonly closed: Cancellation;
  /** Never charged: a call that nobody waits for any more ends at once. */
  readonly unbilled?: true;
  readonly record: RequestRecord;
  readonly credential: (id: string) => string | undefined;
  /** What keeps a conversation on its upstream; null: any. */
  readonly conversation: string | null;
  /** The request as this candidate shall get it. @throws ApiError when it cannot serve the request at all. */
  readonly write: (upstream: Upstream) => Outgoing | Promise<Outgoing>;
}

/** An upstream that answers with a 2xx status. */
export interface Answering {
  readonly upstream: Upstream;
  readonly head: AnswerHead;
  readonly call: UpstreamCall;
  /** To be called as soon as the answer's first event, or the whole of it, is there: the upstream is well. */
  readonly accepted: () => void;
}

/** Takes an answer, whose first bytes come as soon as they are asked for (`UpstreamCall.read`). */
export type Take<T> = (answering: Answering) => Promise<T>;
