/** One try at one upstream: what it is sent, what its end says about the upstream's health, and what is counted. */
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

/** How long one try may take to begin. */
export interface AttemptTimeouts {
  readonly connectMs: number;
  /** Less than the route gives, so that silence for so long says nothing of the upstream's health; null: as the route says. */
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
  /** For the count: an HTTP status, or why there is none. */
  #status = "";
  #accepted = false;
  /** It had less time to begin than the route gives. */
  #isShort = false;
  readonly #seen: Try;
  /** What came is a page for people, by its content type. */
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

  /** Resolves with the answer as soon as it begins. Not async, as there is one for each request. @throws AttemptFailure */
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

  /**
   * The upstream is well. Counts once: that an answer of long ago is over, or paid for, says nothing of an upstream
   * that may have failed others since.
   */
  accepted(): void {
    if (this.#accepted) return;
    this.#accepted = true;
    this.#health.answered(this.#request.route, this.upstream);
  }

  /**
   * Its answer broke off, or makes no sense, after it had begun with a 2xx: counted as what it is, not as its status.
   * @param reason what was wrong with it, more exactly.
   */
  broke(fault: CallFault, reason: string | null = null): void {
    // That its client left, or that we do, says nothing about the upstream.
    if (fault === "cancelled" || fault === "shutdown") this.#seen.fault ??= "cancelled";
    else this.#brokeBy(statusOfFault(fault), reason ?? fault);
  }

  #brokeBy(status: string, reason: string | null): void {
    this.#status = status;
    this.#seen.fault = wordOf(status);
    this.#seen.reason = reason === "garbage" || reason === null ? this.#nature() : reason;
  }

  /** Of an answer that cannot be read. */
  #nature(): string {
    if (this.#isPage) return "html";
    return (this.#call?.received ?? 0) === 0 ? "empty" : "not_json";
  }

  /** Its answer was taken. A client that left before anything of it was there learnt nothing about the upstream. */
  taken(): void {
    this.#over();
    if (!this.#accepted) this.#health.undecided(this.#request.route, this.upstream);
  }

  /** Takes note of what a failure says about the upstream. */
  failed(error: unknown): void {
    if (error instanceof AttemptFailure) this.#failedBy(error);
    this.#over();
    const { route } = this.#request;
    const { upstream } = this;
    if (!(error instanceof AttemptFailure)) return this.#health.undecided(route, upstream);
    // It would renew the ejection of one that is back and slow.
    if (this.#isShort && error.retry === "first_byte_timeout") return;
    if (error.unhealthy) this.#health.failed(route, upstream);
    else if (error.answered) this.#health.answered(route, upstream);
    else this.#health.undecided(route, upstream);
    if (error.retryAfterMs !== null) this.#health.rests(route, upstream, error.retryAfterMs);
  }

  #failedBy({ status, reason, words }: AttemptFailure): void {
    // Whoever read the answer may have said more.
    if (this.#seen.fault === null || this.#seen.fault === "cancelled") {
      if (status === "garbage" && this.#seen.status !== null) this.#brokeBy(status, reason);
      else {
        this.#seen.fault = wordOf(status);
        this.#seen.reason = reason;
      }
    }
    this.#status = status;
    this.#seen.words = words;
  }

  /** However it ended. */
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

  /** Reads what an error says, or how it begins, with a bound in bytes and time: the status alone is enough to go on with. */
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
    // What the route sets by itself wins.
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

/** Proxies answer with pages. */
function isPage({ headers }: AnswerHead): boolean {
  const type = headers["content-type"];
  return typeof type === "string" && /^text\/html\b/i.test(type);
}
