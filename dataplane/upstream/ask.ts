/**
 * Asks a route's upstreams until one answers (design.md §4.6). Until the first byte of an answer reaches the
 * client a failure goes to the next candidate; whoever takes the answer says when that moment has come by not
 * throwing an AttemptFailure any more.
 */
import type { Dispatcher } from "undici";
import type { Route, Upstream } from "../config/schema.ts";
import type { Deadline } from "../lib/deadline.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { RequestRecord } from "../telemetry/request-record.ts";
import { failureOfCall, failureOfStatus, AttemptFailure } from "./failure.ts";
import { ERROR_BODY_MS, MAX_ERROR_BYTES, MAX_STALE_TRIES, STREAM_FIRST_BYTE_MS } from "./limits.ts";
import { CallError, UpstreamCall, type AnswerHead } from "./send.ts";

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
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
  readonly record: RequestRecord;
  readonly credential: (id: string) => string | undefined;
  /** The request as this candidate shall get it. @throws ApiError when it cannot serve the request at all. */
  readonly write: (upstream: Upstream) => Outgoing;
}

/** An upstream that answers with a 2xx status. */
export interface Answering {
  readonly upstream: Upstream;
  readonly head: AnswerHead;
  readonly call: UpstreamCall;
}

/** An upstream's address and fixed headers, worked out once for each snapshot. */
interface Endpoint {
  readonly origin: string;
  readonly path: string;
  readonly headers: readonly string[];
}

export class Upstreams {
  readonly #dispatcher: Dispatcher;
  readonly #endpoints = new WeakMap<Upstream, Endpoint>();

  constructor(dispatcher: Dispatcher) {
    this.#dispatcher = dispatcher;
  }

  /**
   * Calls `take` with the first upstream that answers. `take` may throw an AttemptFailure as long as nothing has
   * reached the client; whatever else it throws, or returns, is the end.
   * @throws ApiError when no upstream answered.
   */
  async ask<T>(question: Question, take: (answering: Answering) => Promise<T>): Promise<T> {
    const { route } = question;
    const [upstream] = [...route.upstreams].sort((one, other) => one.priority - other.priority);
    if (upstream === undefined) throw new Error(`route ${route.model} has no upstream`);
    let stale = 0;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#attempt(question, upstream, take);
      } catch (error) {
        if (!(error instanceof AttemptFailure)) throw error;
        const retriable = error.retry !== null && route.retries.retryOn.includes(error.retry);
        if (error.stale && retriable && stale < MAX_STALE_TRIES) {
          stale += 1;
          attempt -= 1;
        } else if (!retriable || attempt >= route.retries.attempts) throw error.error;
        if (question.signal.aborted || question.deadline.expired) throw error.error;
      }
    }
  }

  async #attempt<T>(
    question: Question,
    upstream: Upstream,
    take: (answering: Answering) => Promise<T>,
  ): Promise<T> {
    const { route, record, deadline, signal } = question;
    const call = new UpstreamCall(this.#options(question, upstream));
    const labels = { model: route.model, upstream: upstream.name };
    const cancel = () => call.abort("cancelled");
    const started = performance.now();
    record.tries += 1;
    record.upstream = upstream.name;
    metrics.upstreamActive.inc(labels);
    signal.addEventListener("abort", cancel, { once: true });
    deadline.listen(() => call.abort("deadline"));
    if (signal.aborted) cancel();
    let status = "";
    try {
      const head = await headOf(call.start(this.#dispatcher), question);
      status = String(head.status);
      record.upstreamWaitMs += performance.now() - started;
      if (head.status < 200 || head.status > 299) throw await failureOf(call, head, upstream, route);
      return await take({ upstream, head, call });
    } catch (error) {
      if (error instanceof AttemptFailure) status = error.status;
      throw error;
    } finally {
      signal.removeEventListener("abort", cancel);
      deadline.listen(null);
      metrics.upstreamActive.dec(labels);
      metrics.upstreamRequests.inc({ ...labels, status });
    }
  }

  #options({ route, stream, batch, credential, write }: Question, upstream: Upstream) {
    const endpoint = this.#endpoint(upstream);
    const { body, headers } = write(upstream);
    const list = [...endpoint.headers, "accept", stream ? "text/event-stream" : "application/json"];
    for (const [name, value] of Object.entries(headers)) list.push(name, value);
    if (upstream.credential !== null) {
      const { id, header } = upstream.credential;
      const value = credential(id);
      if (value !== undefined)
        list.push(header, header.toLowerCase() === "authorization" ? `Bearer ${value}` : value);
    }
    const { connectMs, firstByteMs, streamIdleMs } = route.timeouts;
    return {
      origin: endpoint.origin,
      path: endpoint.path,
      headers: list,
      body,
      connectMs,
      firstByteMs: batch ? null : (firstByteMs ?? (stream ? STREAM_FIRST_BYTE_MS : null)),
      idleMs: stream ? streamIdleMs : null,
    };
  }

  #endpoint(upstream: Upstream): Endpoint {
    const known = this.#endpoints.get(upstream);
    if (known !== undefined) return known;
    const url = new URL(upstream.url);
    const own = new Set(Object.keys(upstream.headers));
    const defaults = {
      "content-type": "application/json",
      "accept-encoding": "identity",
      "user-agent": "gapura",
    };
    const headers = Object.entries(defaults).filter(([name]) => !own.has(name));
    const endpoint = {
      origin: url.origin,
      path: url.pathname + url.search,
      headers: [...headers, ...Object.entries(upstream.headers)].flat(),
    };
    this.#endpoints.set(upstream, endpoint);
    return endpoint;
  }
}

/** @throws AttemptFailure */
async function headOf(call: UpstreamCall, { deadline }: Question): Promise<AnswerHead> {
  try {
    return await call.head;
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    throw failureOfCall(deadline.expired ? "deadline" : error.fault, error.cause);
  }
}

/** Reads what an error says, with a bound in bytes and time: the status alone is enough to go on with. */
async function failureOf(
  call: UpstreamCall,
  head: AnswerHead,
  upstream: Upstream,
  route: Route,
): Promise<AttemptFailure> {
  const timer = setTimeout(() => call.abort("idle"), ERROR_BODY_MS);
  const body = await call.whole(MAX_ERROR_BYTES).catch(() => Buffer.alloc(0));
  clearTimeout(timer);
  return failureOfStatus(head, body, upstream, route, Date.now());
}
