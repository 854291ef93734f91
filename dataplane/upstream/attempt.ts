/** One attempt at one upstream: sends the request, judges the upstream's health by the outcome, and counts it. */
import type { Dispatcher } from "undici";
import type { Upstream } from "../config/schema.ts";
import { type Own, ownSecrets } from "../dialects/own-secrets.ts";
import { MAX_TRIES_KEPT, type Try } from "../telemetry/request-summary.ts";
import { traceHeaders } from "../telemetry/trace.ts";
import { shownCredential, type Endpoint } from "./endpoints.ts";
import { AttemptFailure, failureOfCall, failureOfStatus, statusOfFault, wordOf } from "./failure.ts";
import type { Health } from "./health.ts";
import { ERROR_BODY_MS, MAX_ERROR_BYTES, STREAM_FIRST_BYTE_MS } from "./limits.ts";
import type { Outgoing, UpstreamAnswer, UpstreamRequest } from "./request.ts";
import { CallError, UpstreamCall, type AnswerHead, type CallFault } from "./send.ts";

/** How long one attempt may take until the answer begins. */
export interface AttemptTimeouts {
  readonly connectMs: number;
  /** A first-byte time-out shorter than the route's, so that reaching it says nothing about health; null: the route's own. */
  readonly mostFirstByteMs: number | null;
}

export class Attempt implements UpstreamAnswer {
  readonly upstream: Upstream;
  readonly #request: UpstreamRequest;
  readonly #endpoint: Endpoint;
  readonly #health: Health;
  #call: UpstreamCall | null = null;
  #cancel: (() => void) | null = null;
  #startedAt = 0;
  /** Label for the metric: an HTTP status, or why there was none. */
  #status = "";
  #accepted = false;
  /** Its first-byte time-out was shorter than the route's. */
  #isShort = false;
  readonly #seen: Try;
  /** By its content type the answer is an HTML page. */
  #isPage = false;

  constructor(request: UpstreamRequest, upstream: Upstream, endpoint: Endpoint, health: Health) {
    this.#request = request;
    this.upstream = upstream;
    this.#endpoint = endpoint;
    this.#health = health;
    endpoint.active.value += 1;
    this.#seen = { upstream: upstream.name, status: null, fault: null, reason: null, words: null, ms: 0 };
  }

  get call(): UpstreamCall {
    if (this.#call === null) throw new Error("a call that was not made");
    return this.#call;
  }

  readonly own = (): Own => {
    const { credential, url, model: upstreamModel } = this.upstream;
    const key = credential === null ? undefined : this.#request.credential(credential.id);
    return { secrets: ownSecrets(url, key), names: { upstreamModel, model: this.#request.route.model } };
  };

  /** Resolves when the answer begins. Not an async function, because it is on the hot path. @throws AttemptFailure */
  send(dispatcher: Dispatcher, outgoing: Outgoing, patience: AttemptTimeouts): Promise<UpstreamAnswer> {
    const { route, summary, deadline, closed } = this.#request;
    const { upstream } = this;
    this.#isShort = patience.mostFirstByteMs !== null;
    const call = new UpstreamCall(this.#options(outgoing, patience));
    const cancel = () => (this.#request.unbilled === true ? call.abort("cancelled") : call.drain());
    this.#call = call;
    this.#cancel = cancel;
    this.#startedAt = performance.now();
    summary.tries += 1;
    if (summary.calls.length < MAX_TRIES_KEPT) summary.calls.push(this.#seen);
    summary.upstream = upstream.name;
    this.#health.asked(route, upstream);
    closed.listen(cancel);
    deadline.listen((fault) => call.abort(fault));
    if (deadline.fault !== null) call.abort(deadline.fault);
    if (closed.aborted) cancel();
    return call.start(dispatcher).head.then(
      (head) => {
        this.#waited();
        this.#status = String(head.status);
        this.#seen.status = head.status;
        this.#isPage = isPage(head);
        return head.status < 200 || head.status > 299 ? this.#refused(call, head) : this;
      },
      (error: unknown) => {
        this.#waited();
        if (!(error instanceof CallError)) throw error;
        throw failureOfCall(deadline.fault ?? error.fault, error.cause, call.sent);
      },
    );
  }

  waitsFor(pause: Promise<void>): void {
    this.#request.deadline.stopFor(pause);
  }

  /**
   * Notes that the upstream is healthy. Only the first call counts: the end of an answer that began long ago says nothing
   * about an upstream that may have failed other requests since.
   */
  accepted(): void {
    if (this.#accepted) return;
    this.#accepted = true;
    this.#health.answered(this.#request.route, this.upstream);
  }

  /**
   * Notes that an answer with a 2xx status broke off or is corrupt; it is counted as that fault and not by its status.
   * @param reason the exact cause.
   * @param words what the upstream said of it, without what is ours.
   */
  broke(fault: CallFault, reason: string | null = null, words: string | null = null): void {
    this.#seen.words ??= words;
    // That the client left, or that this process ends, says nothing about the upstream.
    if (fault === "cancelled" || fault === "shutdown") this.#seen.fault ??= "cancelled";
    else this.#brokeBy(statusOfFault(fault), reason ?? fault);
  }

  #brokeBy(status: string, reason: string | null): void {
    this.#status = status;
    this.#seen.fault = wordOf(status);
    this.#seen.reason = reason === "garbage" || reason === null ? this.#nature() : reason;
  }

  /** The reason to report for an answer that cannot be read. */
  #nature(): string {
    if (this.#isPage) return "html";
    return (this.#call?.received ?? 0) === 0 ? "empty" : "not_json";
  }

  /** The answer was read to its end. If the client left before its first byte, nothing was learned about the upstream. */
  taken(): void {
    this.#over();
    if (!this.#accepted) this.#health.undecided(this.#request.route, this.upstream);
  }

  /** Notes what a failure says about the upstream's health. */
  failed(error: unknown): void {
    if (error instanceof AttemptFailure) this.#failedBy(error);
    this.#over();
    const { route } = this.#request;
    const { upstream } = this;
    if (!(error instanceof AttemptFailure)) return this.#health.undecided(route, upstream);
    // Counting it would renew the ejection of an upstream that is back and slow.
    if (this.#isShort && error.retry === "first_byte_timeout") return;
    if (error.unhealthy) this.#health.failed(route, upstream);
    else if (error.answered) this.#health.answered(route, upstream);
    else this.#health.undecided(route, upstream);
    if (error.retryAfterMs !== null) this.#health.rests(route, upstream, error.retryAfterMs);
  }

  #failedBy({ status, label, reason, words }: AttemptFailure): void {
    // The reader of the answer may have noted a more exact fault already.
    if (this.#seen.fault === null || this.#seen.fault === "cancelled") {
      if (status === "garbage" && this.#seen.status !== null) this.#brokeBy(status, reason);
      else {
        this.#seen.fault = wordOf(label);
        this.#seen.reason = reason;
      }
    }
    this.#status = label;
    this.#seen.words = words;
  }

  /** Ends the attempt, whatever its outcome. */
  #over(): void {
    this.#seen.ms = Math.round((performance.now() - this.#startedAt) * 10) / 10;
    const { closed, deadline } = this.#request;
    if (this.#cancel !== null) closed.forget(this.#cancel);
    deadline.listen(null);
    this.#endpoint.active.value -= 1;
    this.#endpoint.count(this.#status);
  }

  #waited(): void {
    this.#request.summary.upstreamWaitMs += performance.now() - this.#startedAt;
  }

  /** Reads an error's body, bounded in bytes and time; the status alone would be enough to continue. */
  async #refused(call: UpstreamCall, head: AnswerHead): Promise<never> {
    const timer = setTimeout(() => call.abort("idle"), ERROR_BODY_MS);
    const body = await call.whole(MAX_ERROR_BYTES).catch((error: unknown) => {
      if (!(error instanceof CallError)) throw error;
      return error.begun.subarray(0, MAX_ERROR_BYTES);
    });
    clearTimeout(timer);
    throw failureOfStatus(head, body, this.upstream.dialect, this.own(), Date.now());
  }

  #options({ body, headers }: Outgoing, { connectMs, mostFirstByteMs }: AttemptTimeouts) {
    const { route, stream, batch, credential, span } = this.#request;
    const { upstream } = this;
    const { origin, path, streamHeaders, wholeHeaders } = this.#endpoint;
    const list = stream ? [...streamHeaders] : [...wholeHeaders];
    // The route's own headers win.
    for (const name in headers)
      if (!Object.hasOwn(upstream.headers, name)) list.push(name, headers[name] as string);
    if (upstream.credential !== null) {
      const { id, header } = upstream.credential;
      const value = credential(id);
      if (value !== undefined) list.push(header, shownCredential(upstream.credential, value));
    }
    if (span !== undefined && span !== null && upstream.propagateTrace === true)
      for (const [name, value] of Object.entries(traceHeaders(span)))
        if (!Object.hasOwn(upstream.headers, name)) list.push(name, value);
    const { firstByteMs, streamIdleMs } = route.timeouts;
    return {
      origin,
      path,
      headers: list,
      body,
      connectMs,
      firstByteMs: batch ? null : (mostFirstByteMs ?? firstByteMs ?? (stream ? STREAM_FIRST_BYTE_MS : null)),
      idleMs: stream ? streamIdleMs : null,
    };
  }
}

/** Whether the answer is an HTML page, as proxies send. */
function isPage({ headers }: AnswerHead): boolean {
  const type = headers["content-type"];
  return typeof type === "string" && /^text\/html\b/i.test(type);
}
