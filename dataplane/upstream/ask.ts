/**
 * Asks a route's upstreams until one answers (design.md §4.6). Until the first byte of an answer reaches the
 * client a failure goes to the next candidate; whoever takes the answer says when that moment has come by not
 * throwing an AttemptFailure any more.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Dispatcher } from "undici";
import type { Route, Upstream } from "../config/schema.ts";
import { ApiError } from "../lib/api-error.ts";
import type { Cancellation } from "../lib/cancellation.ts";
import { systemClock, type Clock } from "../lib/clock.ts";
import type { Deadline } from "../lib/deadline.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { RequestRecord } from "../telemetry/request-record.ts";
import type { Tally } from "../telemetry/tally.ts";
import { failureOfCall, failureOfStatus, AttemptFailure } from "./failure.ts";
import { Health } from "./health.ts";
import { ERROR_BODY_MS, MAX_ERROR_BYTES, MAX_RETRY_WAIT_MS, STREAM_FIRST_BYTE_MS } from "./limits.ts";
import { backOffMs, pick, preference } from "./pick.ts";
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
  readonly closed: Cancellation;
  readonly record: RequestRecord;
  readonly credential: (id: string) => string | undefined;
  /** What keeps a conversation on its upstream; null: any. */
  readonly conversation: string | null;
  /** The request as this candidate shall get it. @throws ApiError when it cannot serve the request at all. */
  readonly write: (upstream: Upstream) => Outgoing;
}

/** An upstream that answers with a 2xx status. */
export interface Answering {
  readonly upstream: Upstream;
  readonly head: AnswerHead;
  readonly call: UpstreamCall;
  /** To be called when the answer's first byte goes to the client: the upstream is well. */
  readonly accepted: () => void;
}

export interface UpstreamsOptions {
  readonly clock?: Clock;
  /** A number in [0, 1): spreads unbound requests, and jitters waiting times. */
  readonly random?: () => number;
  /** Opens a new connection for each request; for a try after one on a stale connection. */
  readonly fresh?: Dispatcher;
}

/** An upstream's address and fixed headers, worked out once for each snapshot. */
interface Endpoint {
  readonly origin: string;
  readonly path: string;
  /** Names and values in turn, for an answer that is streamed and for a whole one. */
  readonly streamHeaders: readonly string[];
  readonly wholeHeaders: readonly string[];
  /** Metrics of this upstream: finding them by their labels each time costs more than counting. */
  readonly active: Tally;
  readonly requests: Map<string, Tally>;
}

export class Upstreams {
  readonly #dispatcher: Dispatcher;
  readonly #fresh: Dispatcher;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #health: Health;
  readonly #endpoints = new WeakMap<Upstream, Endpoint>();

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
  async ask<T>(question: Question, take: (answering: Answering) => Promise<T>): Promise<T> {
    const { route, conversation } = question;
    const order = preference(route.upstreams, () => conversation ?? String(this.#random()));
    const asking = new Asking(question, order, this.#health, this.#clock, this.#random);
    for (;;) {
      const { upstream, waitMs } = asking.next();
      if (waitMs !== null) await asking.wait(waitMs);
      const written = asking.write(upstream);
      if (written === null) continue;
      try {
        return await this.#attempt(question, upstream, written, asking, take);
      } catch (error) {
        if (!(error instanceof AttemptFailure)) throw error;
        asking.failed(upstream, error);
      }
    }
  }

  async #attempt<T>(
    question: Question,
    upstream: Upstream,
    outgoing: Outgoing,
    { connectMs, wasStale }: Asking,
    take: (answering: Answering) => Promise<T>,
  ): Promise<T> {
    const { route, record, deadline, closed } = question;
    const call = new UpstreamCall(this.#options(question, upstream, outgoing, connectMs));
    // The pool's other connections to it may be as stale.
    const dispatcher = wasStale ? this.#fresh : this.#dispatcher;
    const endpoint = this.#endpoint(route, upstream);
    const cancel = () => call.abort("cancelled");
    const started = performance.now();
    record.tries += 1;
    record.upstream = upstream.name;
    this.#health.asked(route, upstream);
    endpoint.active.value += 1;
    closed.listen(cancel);
    deadline.listen(() => call.abort("deadline"));
    if (closed.aborted) cancel();
    let status = "";
    try {
      const head = await headOf(call.start(dispatcher), question, started);
      status = String(head.status);
      if (head.status < 200 || head.status > 299) throw await failureOf(call, head, upstream, route);
      const accepted = () => this.#health.answered(route, upstream);
      const taken = await take({ upstream, head, call, accepted });
      accepted();
      return taken;
    } catch (error) {
      if (error instanceof AttemptFailure) {
        status = error.status;
        this.#learn(route, upstream, error);
      } else this.#health.undecided(route, upstream);
      throw error;
    } finally {
      closed.forget(cancel);
      deadline.listen(null);
      endpoint.active.value -= 1;
      countRequest(endpoint, route, upstream, status);
    }
  }

  #learn(route: Route, upstream: Upstream, failure: AttemptFailure): void {
    if (failure.unhealthy) this.#health.failed(route, upstream);
    if (failure.retryAfterMs !== null) this.#health.rests(route, upstream, failure.retryAfterMs);
    else if (failure.unhealthy) return;
    else if (failure.answered) this.#health.answered(route, upstream);
    else this.#health.undecided(route, upstream);
  }

  #options(
    { route, stream, batch, credential }: Question,
    upstream: Upstream,
    { body, headers }: Outgoing,
    connectMs: number,
  ) {
    const endpoint = this.#endpoint(route, upstream);
    const list = stream ? [...endpoint.streamHeaders] : [...endpoint.wholeHeaders];
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
      origin: endpoint.origin,
      path: endpoint.path,
      headers: list,
      body,
      connectMs,
      firstByteMs: batch ? null : (firstByteMs ?? (stream ? STREAM_FIRST_BYTE_MS : null)),
      idleMs: stream ? streamIdleMs : null,
    };
  }

  #endpoint(route: Route, upstream: Upstream): Endpoint {
    const known = this.#endpoints.get(upstream);
    if (known !== undefined) return known;
    const url = new URL(upstream.url);
    const headersFor = (accept: string) =>
      Object.entries({
        "content-type": "application/json",
        "accept-encoding": "identity",
        "user-agent": "gapura",
        accept,
        // What the route sets by itself wins.
        ...upstream.headers,
      }).flat();
    const endpoint = {
      origin: url.origin,
      path: url.pathname + url.search,
      streamHeaders: headersFor("text/event-stream"),
      wholeHeaders: headersFor("application/json"),
      active: metrics.upstreamActive.series(labelsOf(route, upstream)),
      requests: new Map<string, Tally>(),
    };
    this.#endpoints.set(upstream, endpoint);
    return endpoint;
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
  /** What the client is told when nothing more is tried. */
  #error: ApiError | null = null;
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

  /** How long the try at hand may take to connect. */
  get connectMs(): number {
    const { connectMs } = this.#question.route.timeouts;
    if (this.#desperateUntil === null) return connectMs;
    return Math.max(1, Math.min(connectMs, this.#desperateUntil - this.#clock.now()));
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
  write(upstream: Upstream): Outgoing | null {
    try {
      return this.#question.write(upstream);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#candidates = this.#candidates.filter((candidate) => candidate.upstream !== upstream);
      if (this.#candidates.length === 0) throw this.#error ?? error;
      this.#error ??= error;
      return null;
    }
  }

  /** Takes note of a failed try. @throws ApiError when it was the last one. */
  failed(upstream: Upstream, failure: AttemptFailure): void {
    const { attempts, retryOn } = this.#question.route.retries;
    this.#error = failure.error;
    if (failure.retry === null || !retryOn.includes(failure.retry)) throw failure.error;
    this.#wasStale = failure.stale;
    this.#attempts += 1;
    // Nobody looked at a request on a stale connection: the same upstream is next, at once.
    if (!failure.stale)
      for (const candidate of this.#candidates) if (candidate.upstream === upstream) candidate.tries += 1;
    if (this.#attempts >= attempts) throw failure.error;
  }

  #giveUp(): ApiError {
    return this.#error ?? new ApiError("upstream_error", "The model's provider could not be reached.");
  }
}

const labelsOf = ({ model }: Route, { name }: Upstream) => ({ model, upstream: name });

function countRequest({ requests }: Endpoint, route: Route, upstream: Upstream, status: string): void {
  let counter = requests.get(status);
  if (counter === undefined) {
    counter = metrics.upstreamRequests.series({ ...labelsOf(route, upstream), status });
    requests.set(status, counter);
  }
  counter.value += 1;
}

/** Not async, as there is one for each request. @throws AttemptFailure */
function headOf(call: UpstreamCall, { deadline, record }: Question, started: number): Promise<AnswerHead> {
  return call.head.then(
    (head) => {
      record.upstreamWaitMs += performance.now() - started;
      return head;
    },
    (error: unknown) => {
      record.upstreamWaitMs += performance.now() - started;
      if (!(error instanceof CallError)) throw error;
      throw failureOfCall(deadline.expired ? "deadline" : error.fault, error.cause);
    },
  );
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
