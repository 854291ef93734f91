/**
 * The tries of one request at its route's upstreams (design.md §4.6). Until the first byte of an answer reaches the
 * client a failure goes to the next candidate; whoever reads the answer says when that moment has come by not failing
 * with an AttemptFailure any more.
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
  /** In order of preference; those that cannot hold the request are taken out. */
  #candidates: { readonly upstream: Upstream; tries: number }[];
  /** Whose turn it is. */
  #upstream: Upstream | null = null;
  /** The call under way; null: nothing was sent yet. */
  #attempt: Attempt | null = null;
  #failures = 0;
  #wasStale = false;
  /** Upstreams whose stale connection cost no attempt: once for each, so that the tries are bounded. */
  readonly #spared: Upstream[] = [];
  /** What the client is told when nothing more is tried: the last failure, save that one which may pass says more. */
  #error: ApiError | null = null;
  /** `#error` is of an upstream that may be back in a moment. */
  #mayPass = false;
  /** All upstreams are out (`CandidateState.outUntil`), and the one whose turn it is is asked nevertheless. */
  #isDesperate = false;
  /** When all were out for the first time: together they get no more time than one connection may take. */
  #desperateUntil: number | null = null;

  constructor(upstreams: Upstreams, request: UpstreamRequest) {
    this.#upstreams = upstreams;
    this.#request = request;
    this.#candidates = upstreams
      .preferred(request.route, request.conversation)
      .map((upstream) => ({ upstream, tries: 0 }));
  }

  /**
   * The upstream to write the request for, after the wait that is due before it. At once where nothing is to be waited
   * for: that would cost each request a microsecond.
   * @throws ApiError when there is none, or no time left.
   */
  next(): Upstream | Promise<Upstream> {
    const { upstream, waitMs } = this.#pick();
    this.#upstream = upstream;
    return waitMs === null ? upstream : this.#wait(waitMs).then(() => upstream);
  }

  /** Sends the request to the upstream whose turn it is. @throws AttemptFailure when it does not answer with a 2xx. */
  send(outgoing: Outgoing): Promise<UpstreamAnswer> {
    const upstream = this.#next;
    const { dispatcher, fresh, endpoints, health } = this.#upstreams;
    const { route } = this.#request;
    this.#attempt = new Attempt(this.#request, upstream, endpoints.of(route, upstream), health);
    // The pool's other connections to a stale one's upstream may be as stale.
    return this.#attempt.send(this.#wasStale ? fresh : dispatcher, outgoing, this.#patience(upstream));
  }

  /** Its answer was read to the end. */
  taken(): void {
    this.#attempt?.taken();
    this.#attempt = null;
  }

  /**
   * The request could not be written for this upstream, sent to it, or read from it.
   * @throws what the client is told, unless another try is to be made.
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
   * How long the try at hand may take. One of an upstream that is ejected, as all are, ends within the time of a
   * connection, also where the upstream takes connections and says nothing (rule 1.14). What comes after its ejection,
   * or while it only rests, has the time that the route gives.
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

  /** The upstream to ask after a wait of so many milliseconds, null: at once. @throws ApiError when there is none. */
  #pick(): { readonly upstream: Upstream; readonly waitMs: number | null } {
    const { route } = this.#request;
    const { clock, health, random } = this.#upstreams;
    const now = clock.now();
    const standings = this.#candidates.map(({ upstream, tries }) => ({
      outUntil: health.outUntil(route, upstream),
      tries,
    }));
    const index = pick(standings, now);
    const candidate = this.#candidates[index];
    const standing = standings[index];
    if (candidate === undefined || standing === undefined)
      throw this.#error ?? new Error(`route ${route.model} has no upstream`);
    const isOut = standing.outUntil > now;
    const { upstream, tries } = candidate;
    // One that was tried is asked when its time is over.
    this.#isDesperate = isOut && tries === 0;
    if (this.#isDesperate) this.#desperateUntil ??= now + route.timeouts.connectMs;
    if (this.#failures === 0) return { upstream, waitMs: null };
    // An upstream that was tried in vain and is out now is asked again only after the time it named.
    const outMs = isOut && tries > 0 ? standing.outUntil - now : 0;
    return { upstream, waitMs: Math.max(backOffMs(tries, random()), outMs) };
  }

  /** Waits before a further try, if there is time for it. @throws ApiError when there is not. */
  async #wait(ms: number): Promise<void> {
    const { deadline, closed } = this.#request;
    const tooLate = this.#desperateUntil !== null && this.#upstreams.clock.now() >= this.#desperateUntil;
    this.#checkShutdown();
    if (tooLate || ms > MAX_RETRY_WAIT_MS || ms >= deadline.remainingMs) throw this.#giveUp();
    if (ms > 0) await this.#pause(ms);
    this.#checkShutdown();
    if (closed.aborted || deadline.expired) throw this.#giveUp();
  }

  /** @throws ApiError when this process waits for the request no longer, whatever the upstreams said. */
  #checkShutdown(): void {
    if (this.#request.deadline.fault === "shutdown") throw endedByUs();
  }

  /** Ends early when the client leaves or the time is up. */
  async #pause(ms: number): Promise<void> {
    const { deadline, closed } = this.#request;
    const over = new AbortController();
    deadline.listen(() => over.abort());
    const signal = AbortSignal.any([closed.signal, over.signal]);
    await sleep(ms, undefined, { signal }).catch(() => {});
    deadline.listen(null);
  }

  /** @throws the error unless it is about this upstream alone. */
  #cannotHold(upstream: Upstream, error: unknown): void {
    if (!(error instanceof ApiError)) throw error;
    this.#candidates = this.#candidates.filter((candidate) => candidate.upstream !== upstream);
    if (this.#candidates.length === 0) throw this.#error ?? error;
    this.#error ??= error;
  }

  /** Takes note of a failed try. @throws ApiError when it was the last one. */
  #note(upstream: Upstream, failure: AttemptFailure): void {
    const { attempts, retryOn } = this.#request.route.retries;
    if (failure.retry === null || !retryOn.includes(failure.retry)) throw failure.error;
    if (!failure.lasting || !this.#mayPass) this.#error = failure.error;
    this.#mayPass ||= !failure.lasting;
    this.#wasStale = failure.stale;
    this.#failures += 1;
    // Nobody looked at a request on a stale connection: the same upstream is next, at once.
    if (failure.lasting) this.#candidates = this.#candidates.filter((known) => known.upstream !== upstream);
    else if (!failure.stale)
      for (const candidate of this.#candidates) if (candidate.upstream === upstream) candidate.tries += 1;
    // Where one attempt is all, nothing is sent twice.
    if (failure.stale && attempts > 1 && !this.#spared.includes(upstream)) this.#spared.push(upstream);
    if (this.#failures - this.#spared.length >= attempts || this.#candidates.length === 0)
      throw this.#giveUp();
  }

  #giveUp(): ApiError {
    return this.#error ?? new ApiError("upstream_error", "The model's provider could not be reached.");
  }
}
