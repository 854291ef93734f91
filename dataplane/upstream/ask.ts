/**
 * Asks a route's upstreams until one answers (design.md §4.6). Until the first byte of an answer reaches the
 * client a failure goes to the next candidate; whoever takes the answer says when that moment has come by not
 * throwing an AttemptFailure any more.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Dispatcher } from "undici";
import type { Upstream } from "../config/schema.ts";
import { ApiError } from "../lib/api-error.ts";
import { systemClock, type Clock } from "../lib/clock.ts";
import { Attempt, type Patience } from "./attempt.ts";
import { Endpoints } from "./endpoints.ts";
import { AttemptFailure } from "./failure.ts";
import { Health } from "./health.ts";
import { MAX_RETRY_WAIT_MS } from "./limits.ts";
import { backOffMs, pick, preference } from "./pick.ts";
import type { Outgoing, Question, Take } from "./question.ts";

export interface UpstreamsOptions {
  readonly clock?: Clock;
  /** A number in [0, 1): spreads unbound requests, and jitters waiting times. */
  readonly random?: () => number;
  /** Opens a new connection for each request; for a try after one on a stale connection. */
  readonly fresh?: Dispatcher;
}

export class Upstreams {
  readonly #dispatcher: Dispatcher;
  readonly #fresh: Dispatcher;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #health: Health;
  readonly #endpoints = new Endpoints();

  constructor(
    dispatcher: Dispatcher,
    { clock = systemClock, random = Math.random, fresh = dispatcher }: UpstreamsOptions = {},
  ) {
    this.#dispatcher = dispatcher;
    this.#fresh = fresh;
    this.#clock = clock;
    this.#random = random;
    this.#health = new Health(clock);
  }

  /**
   * Calls `take` with the first upstream that answers. `take` may throw an AttemptFailure as long as nothing has
   * reached the client; whatever else it throws, or returns, is the end.
   * @throws ApiError when no upstream answered.
   */
  async ask<T>(question: Question, take: Take<T>): Promise<T> {
    const { route, conversation } = question;
    const order = preference(route.upstreams, () => conversation ?? String(this.#random()));
    const asking = new Asking(question, order, this.#health, this.#clock, this.#random);
    for (;;) {
      const { upstream, waitMs } = asking.next();
      if (waitMs !== null) await asking.wait(waitMs);
      const writing = asking.write(upstream);
      // Small requests are written at once: waiting for nothing costs each of them a microsecond.
      const written = writing instanceof Promise ? await writing : writing;
      if (written === null) continue;
      const attempt = new Attempt(question, upstream, this.#endpoints.of(route, upstream), this.#health);
      // The pool's other connections to a stale one's upstream may be as stale.
      const dispatcher = asking.wasStale ? this.#fresh : this.#dispatcher;
      try {
        const taken = await attempt.start(dispatcher, written, asking.patience(upstream), take);
        attempt.taken();
        return taken;
      } catch (error) {
        attempt.failed(error);
        if (!(error instanceof AttemptFailure)) throw error;
        asking.failed(upstream, error);
      } finally {
        attempt.over();
      }
    }
  }
}

/** The tries of one request: who is next, and when it is over. */
class Asking {
  readonly #question: Question;
  readonly #health: Health;
  readonly #clock: Clock;
  readonly #random: () => number;
  /** In order of preference; those that cannot hold the request are taken out. */
  #candidates: { readonly upstream: Upstream; tries: number }[];
  #attempts = 0;
  #wasStale = false;
  /** What the client is told when nothing more is tried: the last failure, save that one which may pass says more. */
  #error: ApiError | null = null;
  /** `#error` is of an upstream that may be back in a moment. */
  #mayPass = false;
  /** Upstreams were all out at the first try: together they get no more time than one connection may take. */
  #desperateUntil: number | null = null;

  constructor(
    question: Question,
    order: readonly Upstream[],
    health: Health,
    clock: Clock,
    random: () => number,
  ) {
    this.#question = question;
    this.#health = health;
    this.#clock = clock;
    this.#random = random;
    this.#candidates = order.map((upstream) => ({ upstream, tries: 0 }));
  }

  /**
   * How long the try at hand may take. One that is made because all are out ends within the time of a connection, also
   * where its upstream takes connections and says nothing (rule 1.14); one that comes back slowly is back all the same
   * when its ejection is over.
   */
  patience(upstream: Upstream): Patience {
    const { route } = this.#question;
    const { connectMs } = route.timeouts;
    if (this.#desperateUntil === null) return { connectMs, mostFirstByteMs: null };
    const leftMs = Math.max(1, Math.min(connectMs, this.#desperateUntil - this.#clock.now()));
    const { firstByteMs } = route.timeouts;
    const isSilent = this.#health.isSilent(route, upstream);
    return { connectMs: leftMs, mostFirstByteMs: isSilent ? Math.min(leftMs, firstByteMs ?? leftMs) : null };
  }

  /** The try before this one met a connection that had been closed meanwhile. */
  get wasStale(): boolean {
    return this.#wasStale;
  }

  /** The upstream to ask after a wait of so many milliseconds, null: at once. @throws ApiError when there is none. */
  next(): { readonly upstream: Upstream; readonly waitMs: number | null } {
    const { route } = this.#question;
    const now = this.#clock.now();
    const standings = this.#candidates.map(({ upstream, tries }) => ({
      outUntil: this.#health.outUntil(route, upstream),
      tries,
    }));
    const index = pick(standings, now);
    const candidate = this.#candidates[index];
    const standing = standings[index];
    if (candidate === undefined || standing === undefined)
      throw this.#error ?? new Error(`route ${route.model} has no upstream`);
    const isOut = standing.outUntil > now;
    const { upstream, tries } = candidate;
    if (this.#attempts === 0) {
      if (isOut) this.#desperateUntil = now + route.timeouts.connectMs;
      return { upstream, waitMs: null };
    }
    // An upstream that was tried in vain and is out now is asked again only after the time it named.
    const outMs = isOut && tries > 0 ? standing.outUntil - now : 0;
    return { upstream, waitMs: Math.max(backOffMs(tries, this.#random()), outMs) };
  }

  /** Waits before a further try, if there is time for it. @throws ApiError when there is not. */
  async wait(ms: number): Promise<void> {
    const { deadline, closed } = this.#question;
    const tooLate = this.#desperateUntil !== null && this.#clock.now() >= this.#desperateUntil;
    if (tooLate || ms > MAX_RETRY_WAIT_MS || ms >= deadline.remainingMs) throw this.#giveUp();
    if (ms > 0) await sleep(ms, undefined, { signal: closed.signal }).catch(() => {});
    if (closed.aborted || deadline.expired) throw this.#giveUp();
  }

  /** The request for this upstream; null when its dialect cannot hold it, but another candidate's may. */
  write(upstream: Upstream): Outgoing | null | Promise<Outgoing | null> {
    try {
      const written = this.#question.write(upstream);
      return written instanceof Promise
        ? written.catch((error: unknown) => this.#cannotHold(upstream, error))
        : written;
    } catch (error) {
      return this.#cannotHold(upstream, error);
    }
  }

  /** @throws the error unless it is about this upstream alone. */
  #cannotHold(upstream: Upstream, error: unknown): null {
    if (!(error instanceof ApiError)) throw error;
    this.#candidates = this.#candidates.filter((candidate) => candidate.upstream !== upstream);
    if (this.#candidates.length === 0) throw this.#error ?? error;
    this.#error ??= error;
    return null;
  }

  /** Takes note of a failed try. @throws ApiError when it was the last one. */
  failed(upstream: Upstream, failure: AttemptFailure): void {
    const { attempts, retryOn } = this.#question.route.retries;
    if (failure.retry === null || !retryOn.includes(failure.retry)) throw failure.error;
    if (!failure.lasting || !this.#mayPass) this.#error = failure.error;
    this.#mayPass ||= !failure.lasting;
    this.#wasStale = failure.stale;
    this.#attempts += 1;
    // Nobody looked at a request on a stale connection: the same upstream is next, at once.
    if (failure.lasting) this.#candidates = this.#candidates.filter((known) => known.upstream !== upstream);
    else if (!failure.stale)
      for (const candidate of this.#candidates) if (candidate.upstream === upstream) candidate.tries += 1;
    if (this.#attempts >= attempts || this.#candidates.length === 0) throw this.#giveUp();
  }

  #giveUp(): ApiError {
    return this.#error ?? new ApiError("upstream_error", "The model's provider could not be reached.");
  }
}
