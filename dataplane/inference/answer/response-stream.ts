/**
 * One upstream's streamed answer on its way to whoever it is for: a client that gets it relayed or converted, or the
 * tool loop (design.md §4.4). Here stands what these have in common: phases, back-pressure, what is observed, what it
 * costs, and what becomes of an answer that breaks off.
 *
 *   opening ──first event──> running ──its end──> over
 *      └──an error, garbage or nothing: another upstream may be asked ──^
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { isCorrupt, withoutOwn } from "../../dialects/upstream-error.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { objectOf, parseJson } from "../../dialects/fields.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import type { ApiError } from "../../lib/api-error.ts";
import { isJsonSpace, OPEN_OBJECT } from "../../lib/json-bytes.ts";
import { GatheredPieces } from "../../lib/small-pieces.ts";
import { SseOverflow } from "../../lib/sse.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { AttemptFailure, failureOfError, failureOfErrorBody, inBandReason } from "../../upstream/failure.ts";
import { MAX_ERROR_BYTES } from "../../upstream/limits.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import type { BodyReader, CallFault } from "../../upstream/send.ts";
import { brokenStream, faultKind, faultOfEnd, isOwed, unbegunAnswer } from "./broken-answer.ts";
import { isErrorBody } from "./whole-answer.ts";

/** Time between two observations of a running stream; after a crash of this process the last one is charged. */
const OBSERVE_MS = 1_000;
/**
 * So long one answer is worked at before others have a turn. One that comes as fast as the network brings it would have two
 * megabytes of the socket's in each, and of tiny events these are a hundred milliseconds.
 */
const TURN_MS = 5;

const NOTHING: MessagesUsage = { input_tokens: 0, output_tokens: 0 };

/** Turns an upstream's bytes into what the consumer gets, and reports to its stream: `open`, `pass`, `finish`, `refuse`. */
export interface StreamTranslator<Out> {
  /** Reads what came at once, in order. @throws SseOverflow */
  push(chunks: readonly Buffer[]): void;
  /** Reads what is left of a body that ended in an orderly way. @returns why that was too early, where it can say so. */
  end(): ApiError | null;
  /**
   * Ends an answer whose rest will not come, where it is complete without it.
   * @returns its end as far as it was held back; null: it is not complete, or its end was reported to the stream.
   */
  endEarly(): Out | null;
  /** What the answer has used so far. */
  readonly usage: MessagesUsage;
  /** It failed by its own account, before anything was reported or written: a whole answer that says the same costs nothing. */
  readonly isFree: boolean;
}

/** Whoever the answer is for. */
export interface StreamConsumer<Out> {
  /** The client's. */
  readonly dialect: Dialect;
  /** The first event is there: from here on a failure is told in-band. */
  begin(): void;
  /** @returns false when no more is wanted before `drained` resolves. */
  take(out: Out): boolean;
  drained(): Promise<void>;
  observe(usage: MessagesUsage): void;
  /** The answer is complete: `last` may be passed on once it is charged. */
  complete(last: Out, usage: MessagesUsage): Promise<void>;
  /** The answer broke off. `usage`: what it cost; null: nothing. */
  abandon(error: ApiError, fault: CallFault, usage: MessagesUsage | null): Promise<void>;
  /** What reads the answer failed, a bug of ours: it is logged, and its client told. `usage` as of `abandon`. */
  misread(cause: unknown, usage: MessagesUsage | null): Promise<void>;
}

export class ResponseStream<Out> implements BodyReader {
  #phase: "opening" | "running" | "over" = "opening";
  readonly #answer: UpstreamAnswer;
  readonly #to: StreamConsumer<Out>;
  readonly #translator: StreamTranslator<Out>;
  readonly #ended = Promise.withResolvers<void>();
  /** Nothing is read from the upstream before: others have had a turn, the reader has caught up. */
  readonly #waitsFor = new Set<"turn" | "reader">();
  /** Milliseconds of work since it last waited for a turn. */
  #workedMs = 0;
  #observedAt = Number.NEGATIVE_INFINITY;
  /** What was used when that could be read last. */
  #lastUsage: MessagesUsage = NOTHING;
  /** Whoever waits for the end will hear of it. */
  #isEnding = false;
  /** Of a body that begins as an object does, and so holds no event: it may tell an error. null: it does not; undefined: nothing but blanks came. */
  #object: GatheredPieces | null | undefined = undefined;

  constructor(
    answer: UpstreamAnswer,
    to: StreamConsumer<Out>,
    translator: (stream: ResponseStream<Out>) => StreamTranslator<Out>,
  ) {
    this.#answer = answer;
    this.#to = to;
    this.#translator = translator(this);
  }

  /**
   * Resolves when the answer is over, however it ended. @throws AttemptFailure while nothing of it was passed on, or what a
   * bug of ours threw by then.
   */
  run(): Promise<void> {
    this.#answer.call.read(this);
    return this.#ended.promise;
  }

  /** What the answer has used so far; where that cannot be read, what it had when it last could. */
  get usage(): MessagesUsage {
    try {
      return this.#readUsage();
    } catch {
      return this.#lastUsage;
    }
  }

  #readUsage(): MessagesUsage {
    const { isFree, usage } = this.#translator;
    this.#lastUsage = isFree ? NOTHING : usage;
    return this.#lastUsage;
  }

  get isOpening(): boolean {
    return this.#phase === "opening";
  }

  get isOver(): boolean {
    return this.#phase === "over";
  }

  // What the upstream's call tells.

  data(chunks: readonly Buffer[]): void {
    if (this.isOver) return;
    if (this.isOpening) this.#gather(chunks);
    const began = performance.now();
    try {
      this.#translator.push(chunks);
      const now = performance.now();
      if (this.#phase === "running") this.#observe(now);
      this.#workedMs += now - began;
      if (this.#workedMs >= TURN_MS) this.#waitFor("turn", nextTurn);
    } catch (error) {
      if (error instanceof SseOverflow) this.overflow();
      else this.#misread(error);
    }
  }

  end(): void {
    if (this.isOver) return;
    try {
      const early = this.#translator.end();
      if (this.isOver) return;
      if (this.#completed()) return;
      const failure = this.isOpening ? this.#toldFailure() : null;
      if (failure !== null) return this.#reject(failure);
      const fault = faultOfEnd(!this.isOpening, this.#answer.call);
      this.#broke(early ?? brokenStream(fault), fault);
    } catch (error) {
      this.#misread(error);
    }
  }

  fail(fault: CallFault): void {
    if (this.isOver) return;
    try {
      // The answer is complete already; only closing the connection failed (rule 2.13).
      if (fault !== "cancelled" && this.#completed()) return;
      this.#broke(brokenStream(fault), fault);
    } catch (error) {
      this.#misread(error);
    }
  }

  // What the translator tells.

  /** The first event is there. */
  open(): void {
    this.#phase = "running";
    this.#answer.accepted();
    this.#to.begin();
  }

  pass(out: Out): void {
    // A client that takes nothing at all is cut by its sink.
    if (!this.#to.take(out)) this.#waitFor("reader", () => this.#to.drained());
  }

  /** The answer is complete with `last`. */
  finish(last: Out): void {
    if (this.isOver) return;
    const usage = this.#readUsage();
    this.#phase = "over";
    this.#end(this.#to.complete(last, usage));
    this.#answer.call.linger();
  }

  /** The upstream goes on, but nobody wants more of it. */
  discard(): void {
    this.#answer.call.abort("cancelled");
  }

  /** An event that is an error itself, or that cannot be read. */
  refuse(refusal: ApiError): void {
    const error = withoutOwn(refusal, this.#answer.own);
    if (this.#completed()) return;
    if (this.isOpening)
      this.#reject(
        isCorrupt(error)
          ? new AttemptFailure(error, { retry: null, status: "garbage" })
          : failureOfError(error, this.#answer.own),
      );
    else {
      metrics.streamFaults.inc({ dialect: this.#to.dialect, kind: "error" });
      if (isCorrupt(error)) this.#answer.broke("garbage", "not_json");
      else this.#answer.broke("cut", inBandReason(error, this.#answer.own));
      this.#abandon(error, "garbage");
    }
    this.#answer.call.abort("cut");
  }

  /** More came than is kept. */
  overflow(): void {
    this.#answer.call.abort("too_large");
  }

  /** What the packet at hand still brings may give another cause to wait: nothing is read before the last is over. */
  #waitFor(what: "turn" | "reader", until: () => Promise<void>): void {
    if (this.#waitsFor.has(what) || this.isOver) return;
    const { call } = this.#answer;
    if (this.#waitsFor.size === 0) call.pause();
    this.#waitsFor.add(what);
    const waited = until().then(() => {
      this.#waitsFor.delete(what);
      if (what === "turn") this.#workedMs = 0;
      if (this.#waitsFor.size === 0) call.resume();
    });
    waited.catch((error: unknown) => this.#ended.reject(error));
  }

  #gather(chunks: readonly Buffer[]): void {
    for (const chunk of chunks) {
      // Blank lines come first where an upstream shows that it is still at work.
      const first = this.#object === undefined ? chunk.find((byte) => !isJsonSpace(byte)) : undefined;
      if (first !== undefined) this.#object = first === OPEN_OBJECT ? new GatheredPieces() : null;
      this.#object?.add(chunk);
    }
    if ((this.#object?.length ?? 0) > MAX_ERROR_BYTES) this.#object = null;
  }

  /** An error that stands in the place of a stream: as if it had been a status. */
  #toldFailure(): AttemptFailure | null {
    const body = Buffer.concat(this.#object?.take() ?? []);
    const parsed = objectOf(parseJson(body.toString("utf8")));
    return parsed !== null && isErrorBody(parsed) ? failureOfErrorBody(body, this.#answer.own) : null;
  }

  #observe(now: number): void {
    if (now - this.#observedAt < OBSERVE_MS) return;
    this.#observedAt = now;
    this.#to.observe(this.#readUsage());
  }

  /** Ends an answer that is complete without the rest. */
  #completed(): boolean {
    const end = this.#translator.endEarly();
    if (end !== null) this.finish(end);
    return this.isOver;
  }

  /** The stream stopped before its end. */
  #broke(error: ApiError, fault: CallFault): void {
    const isLeft = fault === "cancelled";
    if (!isLeft && fault !== "shutdown")
      metrics.streamFaults.inc({ dialect: this.#to.dialect, kind: faultKind(fault) });
    if (this.isOpening && !isLeft) this.#reject(unbegunAnswer(error, fault));
    else {
      this.#answer.broke(fault);
      this.#abandon(error, fault);
    }
  }

  /** Nothing was passed on: this is still a plain HTTP error, and another upstream may be asked. */
  #reject(failure: unknown): void {
    this.#phase = "over";
    this.#isEnding = true;
    this.#ended.reject(failure);
  }

  /**
   * What reads the answer failed, which is a bug of ours and says nothing of the upstream: whoever waits is told, however much was
   * read, and nothing that other requests need ends with it. Before the first event it is thrown on, to be logged there.
   */
  #misread(cause: unknown): void {
    if (this.#isEnding) return;
    const { call } = this.#answer;
    if (this.isOpening) this.#reject(cause);
    else {
      this.#phase = "over";
      this.#end(this.#to.misread(cause, isOwed(call, "cancelled") ? this.usage : null));
    }
    call.abort("cancelled");
  }

  #abandon(error: ApiError, fault: CallFault): void {
    const owes = isOwed(this.#answer.call, fault) && !this.#translator.isFree;
    const usage = owes ? this.#readUsage() : null;
    this.#phase = "over";
    this.#end(this.#to.abandon(error, fault, usage));
  }

  #end(work: Promise<void>): void {
    this.#isEnding = true;
    work.then(this.#ended.resolve, this.#ended.reject);
  }
}
