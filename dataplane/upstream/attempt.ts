/** One try at one upstream: what it is sent, what its end says about the upstream's health, and what is counted. */
import type { Dispatcher } from "undici";
import type { Upstream } from "../config/schema.ts";
import type { Endpoint } from "./endpoints.ts";
import { AttemptFailure, failureOfCall, failureOfStatus } from "./failure.ts";
import type { Health } from "./health.ts";
import { ERROR_BODY_MS, MAX_ERROR_BYTES, STREAM_FIRST_BYTE_MS } from "./limits.ts";
import type { Answering, Outgoing, Question, Take } from "./question.ts";
import { CallError, UpstreamCall, type AnswerHead } from "./send.ts";

/** How long one try may take to begin. */
export interface Patience {
  readonly connectMs: number;
  /** null: as the route says. */
  readonly mostFirstByteMs: number | null;
}

export class Attempt {
  readonly #question: Question;
  readonly #upstream: Upstream;
  readonly #endpoint: Endpoint;
  readonly #health: Health;
  #cancel: (() => void) | null = null;
  #startedAt = 0;
  /** For the count: an HTTP status, or why there is none. */
  #status = "";
  #accepted = false;

  constructor(question: Question, upstream: Upstream, endpoint: Endpoint, health: Health) {
    this.#question = question;
    this.#upstream = upstream;
    this.#endpoint = endpoint;
    this.#health = health;
    endpoint.active.value += 1;
  }

  /**
   * Asks, and has an answer with a 2xx status taken, as soon as it begins. Not async, as there is one for each request.
   * @throws AttemptFailure when there is none; and whatever `take` throws.
   */
  start<T>(dispatcher: Dispatcher, outgoing: Outgoing, patience: Patience, take: Take<T>): Promise<T> {
    const { route, record, deadline, closed } = this.#question;
    const upstream = this.#upstream;
    const call = new UpstreamCall(this.#options(outgoing, patience));
    const cancel = () => (this.#question.unbilled === true ? call.abort("cancelled") : call.drain());
    this.#cancel = cancel;
    this.#startedAt = performance.now();
    record.tries += 1;
    record.upstream = upstream.name;
    this.#health.asked(route, upstream);
    closed.listen(cancel);
    deadline.listen(() => call.abort("deadline"));
    if (closed.aborted) cancel();
    let taken: Promise<T> | null = null;
    const onHead = (head: AnswerHead) => {
      this.#waited();
      this.#status = String(head.status);
      if (head.status < 200 || head.status > 299) return;
      taken = startTaking(take, { upstream, head, call, accepted: () => this.accepted() });
    };
    return call.start(dispatcher, onHead).head.then(
      (head) => taken ?? this.#refused(call, head),
      (error: unknown) => {
        this.#waited();
        if (!(error instanceof CallError)) throw error;
        throw failureOfCall(deadline.expired ? "deadline" : error.fault, error.cause, call.sent);
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
    this.#health.answered(this.#question.route, this.#upstream);
  }

  /** Its answer was taken. A client that left before anything of it was there learnt nothing about the upstream. */
  taken(): void {
    if (!this.#accepted) this.#health.undecided(this.#question.route, this.#upstream);
  }

  /** Takes note of what a failure says about the upstream. */
  failed(error: unknown): void {
    const { route } = this.#question;
    const upstream = this.#upstream;
    if (!(error instanceof AttemptFailure)) return this.#health.undecided(route, upstream);
    this.#status = error.status;
    if (error.unhealthy) this.#health.failed(route, upstream, error.retry === "first_byte_timeout");
    else if (error.answered) this.#health.answered(route, upstream);
    else this.#health.undecided(route, upstream);
    if (error.retryAfterMs !== null) this.#health.rests(route, upstream, error.retryAfterMs);
  }

  /** However it ended. */
  over(): void {
    const { closed, deadline } = this.#question;
    if (this.#cancel !== null) closed.forget(this.#cancel);
    deadline.listen(null);
    this.#endpoint.active.value -= 1;
    this.#endpoint.count(this.#status);
  }

  #waited(): void {
    this.#question.record.upstreamWaitMs += performance.now() - this.#startedAt;
  }

  /** Reads what an error says, with a bound in bytes and time: the status alone is enough to go on with. */
  async #refused(call: UpstreamCall, head: AnswerHead): Promise<never> {
    const timer = setTimeout(() => call.abort("idle"), ERROR_BODY_MS);
    const body = await call.whole(MAX_ERROR_BYTES).catch(() => Buffer.alloc(0));
    clearTimeout(timer);
    throw failureOfStatus(head, body, this.#upstream, this.#question.route, Date.now());
  }

  #options({ body, headers }: Outgoing, { connectMs, mostFirstByteMs }: Patience) {
    const { route, stream, batch, credential } = this.#question;
    const upstream = this.#upstream;
    const { origin, path, streamHeaders, wholeHeaders } = this.#endpoint;
    const list = stream ? [...streamHeaders] : [...wholeHeaders];
    // What the route sets by itself wins.
    for (const name in headers)
      if (!Object.hasOwn(upstream.headers, name)) list.push(name, headers[name] as string);
    if (upstream.credential !== null) {
      const { id, header } = upstream.credential;
      const value = credential(id);
      if (value !== undefined)
        list.push(header, header.toLowerCase() === "authorization" ? `Bearer ${value}` : value);
    }
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

/** What calls this is undici's parser, to which nothing may be thrown. */
function startTaking<T>(take: Take<T>, answering: Answering): Promise<T> {
  try {
    return take(answering);
  } catch (error) {
    return Promise.reject(error);
  }
}
