/**
 * The attempts of one request at its route's upstreams (design.md §4.6). Until the first byte of an answer reaches the
 * client, a failure moves on to the next candidate. After that moment the reader of the answer throws no AttemptFailure.
 *
 *   next() ──> an upstream, for which the caller writes the request
 *   send() ──> its answer
 *   taken(), or failed(error): then next() again, unless it throws
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Upstream } from "../config/schema.ts";
import { ApiError } from "../lib/api-error.ts";
import { Attempt, type AttemptTimeouts } from "./attempt.ts";
import { AttemptFailure, endedByUs } from "./failure.ts";
import { MAX_RETRY_WAIT_MS } from "./limits.ts";
import { backOffMs, pick } from "./pick.ts";
import type { Outgoing, UpstreamAnswer, UpstreamRequest } from "./request.ts";
import type { Upstreams } from "./upstreams.ts";

export class Attempts {
  readonly #upstreams: Upstreams;
  readonly #request: UpstreamRequest;
  /** In order of preference, without those whose dialect cannot express the request. */
  #candidates: { readonly upstream: Upstream; tries: number }[];
  /** The upstream of the current attempt. */
  #upstream: Upstream | null = null;
  /** The attempt in progress; null: nothing was sent yet. */
  #attempt: Attempt | null = null;
  #failures = 0;
  #wasStale = false;
  /** Upstreams whose stale connection was not counted as an attempt; once for each, so that attempts stay bounded. */
  readonly #spared: Upstream[] = [];
  /** The client's error if no attempt succeeds: the last failure, but a transient one takes precedence. */
  #error: ApiError | null = null;
  /** Whether `#error` is transient: its upstream may be back in a moment. */
  #mayPass = false;
  /** Whether all upstreams are out (`CandidateState.outUntil`) and the current one is called nevertheless. */
  #isDesperate = false;
  /** Deadline of the attempts made while all upstreams are out: together they get the time of one connection. */
  #desperateUntil: number | null = null;

  constructor(upstreams: Upstreams, request: UpstreamRequest) {
    this.#upstreams = upstreams;
    this.#request = request;
    this.#candidates = upstreams
      .preferred(request.route, request.conversation)
      .map((upstream) => ({ upstream, tries: 0 }));
  }

  /**
   * Returns the next upstream, after the back-off that is due. Returns a promise only if there is something to wait for: an
   * await would cost each request a microsecond.
   * @throws ApiError when there is no upstream, or no time left.
   */
  next(): Upstream | Promise<Upstream> {
    const { upstream, waitMs } = this.#pick();
    this.#upstream = upstream;
    return waitMs === null ? upstream : this.#wait(waitMs).then(() => upstream);
  }

  /** Sends the request to the current upstream. @throws AttemptFailure when it does not answer with a 2xx. */
  send(outgoing: Outgoing): Promise<UpstreamAnswer> {
    const upstream = this.#next;
    const { dispatcher, fresh, endpoints, health } = this.#upstreams;
    const { route } = this.#request;
    this.#attempt = new Attempt(this.#request, upstream, endpoints.of(route, upstream), health);
    // After a stale connection, the pool's other connections to that upstream may be stale too.
    return this.#attempt.send(this.#wasStale ? fresh : dispatcher, outgoing, this.#patience(upstream));
  }

  /** The answer was read to its end. */
  taken(): void {
    this.#attempt?.taken();
    this.#attempt = null;
  }

  /**
   * Notes that the request could not be written for this upstream, sent to it, or its answer read.
   * @throws the client's error, unless another attempt follows.
   */
  failed(error: unknown): void {
    const attempt = this.#attempt;
    if (attempt === null) return this.#cannotHold(this.#next, error);
    this.#attempt = null;
    attempt.failed(error);
    if (!(error instanceof AttemptFailure)) throw error;
    this.#note(this.#next, error);
  }

  get #next(): Upstream {
    if (this.#upstream === null) throw new Error("nobody is next");
    return this.#upstream;
  }

  /**
   * Time-outs of the current attempt. While all upstreams are ejected, an attempt at one of them must begin to be answered
   * within the time of a connection, even if the upstream accepts connections and stays silent (rule 1.14). Any other attempt
   * has the route's time-outs.
   */
  #patience(upstream: Upstream): AttemptTimeouts {
    const { route } = this.#request;
    const { connectMs, firstByteMs } = route.timeouts;
    if (!this.#isDesperate || this.#desperateUntil === null) return { connectMs, mostFirstByteMs: null };
    const { clock, health } = this.#upstreams;
    const leftMs = Math.max(1, Math.min(connectMs, this.#desperateUntil - clock.now()));
    const isEjected = health.isEjected(route, upstream);
    return { connectMs: leftMs, mostFirstByteMs: isEjected ? Math.min(leftMs, firstByteMs ?? leftMs) : null };
  }

  /** Picks the next upstream. `waitMs`: wait before it is called; null: none. @throws ApiError when there is no upstream. */
  #pick(): { readonly upstream: Upstream; readonly waitMs: number | null } {
    const { route } = this.#request;
    const { clock, health, random } = this.#upstreams;
    const now = clock.now();
    const states = this.#candidates.map(({ upstream, tries }) => ({
      outUntil: health.outUntil(route, upstream),
      tries,
    }));
    const index = pick(states, now);
    const candidate = this.#candidates[index];
    const state = states[index];
    if (candidate === undefined || state === undefined)
      throw this.#error ?? new Error(`route ${route.model} has no upstream`);
    const isOut = state.outUntil > now;
    const { upstream, tries } = candidate;
    // An upstream that was tried already is called after its time out is over, so it is no desperate attempt.
    this.#isDesperate = isOut && tries === 0;
    if (this.#isDesperate) this.#desperateUntil ??= now + route.timeouts.connectMs;
    if (this.#failures === 0) return { upstream, waitMs: null };
    // An upstream that failed this request and is out now is called again only when it is back in.
    const outMs = isOut && tries > 0 ? state.outUntil - now : 0;
    return { upstream, waitMs: Math.max(backOffMs(tries, random()), outMs) };
  }

  /** Waits before another attempt. @throws ApiError when there is not enough time for it. */
  async #wait(ms: number): Promise<void> {
    const { deadline, closed } = this.#request;
    const tooLate = this.#desperateUntil !== null && this.#upstreams.clock.now() >= this.#desperateUntil;
    this.#checkShutdown();
    if (tooLate || ms > MAX_RETRY_WAIT_MS || ms >= deadline.remainingMs) throw this.#giveUp();
    if (ms > 0) await this.#pause(ms);
    this.#checkShutdown();
    if (closed.aborted || deadline.expired) throw this.#giveUp();
  }

  /** @throws ApiError when this process ends and no longer waits for the request. */
  #checkShutdown(): void {
    if (this.#request.deadline.fault === "shutdown") throw endedByUs();
  }

  /** Sleeps; ends early when the client leaves or the time is up. */
  async #pause(ms: number): Promise<void> {
    const { deadline, closed } = this.#request;
    const over = new AbortController();
    deadline.listen(() => over.abort());
    const signal = AbortSignal.any([closed.signal, over.signal]);
    await sleep(ms, undefined, { signal }).catch(() => {});
    deadline.listen(null);
  }

  /** Removes an upstream that cannot express the request. @throws the error when it is not about this upstream alone. */
  #cannotHold(upstream: Upstream, error: unknown): void {
    if (!(error instanceof ApiError)) throw error;
    this.#candidates = this.#candidates.filter((candidate) => candidate.upstream !== upstream);
    if (this.#candidates.length === 0) throw this.#error ?? error;
    this.#error ??= error;
  }

  /** Notes a failed attempt. @throws ApiError when it was the last one. */
  #note(upstream: Upstream, failure: AttemptFailure): void {
    const { attempts, retryOn } = this.#request.route.retries;
    if (failure.retry === null || !retryOn.includes(failure.retry)) throw failure.error;
    if (!failure.lasting || !this.#mayPass) this.#error = failure.error;
    this.#mayPass ||= !failure.lasting;
    this.#wasStale = failure.stale;
    this.#failures += 1;
    // A request on a stale connection was not processed: the same upstream is called again, at once.
    if (failure.lasting) this.#candidates = this.#candidates.filter((known) => known.upstream !== upstream);
    else if (!failure.stale)
      for (const candidate of this.#candidates) if (candidate.upstream === upstream) candidate.tries += 1;
    // With `attempts: 1` nothing is sent twice, not even after a stale connection.
    if (failure.stale && attempts > 1 && !this.#spared.includes(upstream)) this.#spared.push(upstream);
    if (this.#failures - this.#spared.length >= attempts || this.#candidates.length === 0)
      throw this.#giveUp();
  }

  #giveUp(): ApiError {
    return this.#error ?? new ApiError("upstream_error", "The model's provider could not be reached.");
  }
}
