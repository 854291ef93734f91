/**
 * One upstream's streamed answer on its way to its consumer: a client that gets it relayed or converted, or the tool
 * loop (design.md §4.4). This file holds what they have in common: phases, back-pressure, observations of usage, what
 * the answer costs, and what becomes of an answer that breaks off.
 *
 *   opening ──first event──> running ──its end──> over
 *      └──an error, garbage or nothing: another upstream may be asked ──^
 */
import { inBandWords, isCorrupt, withoutOwn } from "../../dialects/upstream-error.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { objectOf, parseJson } from "../../dialects/fields.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import { ApiError } from "../../lib/api-error.ts";
import { workedMs } from "../../lib/clock.ts";
import { isJsonSpace, OPEN_OBJECT } from "../../lib/json-bytes.ts";
import { GatheredPieces } from "../../lib/small-pieces.ts";
import { SseOverflow } from "../../lib/sse.ts";
import { TURN_MS, type Waiting, type WorkOwner } from "../../lib/work-turns.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { AttemptFailure, failureOfError, failureOfErrorBody, inBandReason } from "../../upstream/failure.ts";
import { MAX_ERROR_BYTES } from "../../upstream/limits.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import type { BodyReader, CallFault } from "../../upstream/send.ts";
import type { BodyLease } from "../call.ts";
import { brokenStream, faultKind, faultOfEnd, isOwed, unbegunAnswer } from "./broken-answer.ts";
import { HeldBytes } from "./held-bytes.ts";
import { isErrorBody } from "./whole-answer.ts";

/** Time between two observations of a running stream; after a crash of this process the last one is charged. */
const OBSERVE_MS = 1_000;
/** Milliseconds of work counted for each HTTP chunk: what undici and `UpstreamCall` spend on it before it is read here. */
const CHUNK_MS = 0.001;

/** Most events that are read before the time is checked. Their output is passed on together. */
export const EVENTS_AT_ONCE = 256;

const NOTHING: MessagesUsage = { input_tokens: 0, output_tokens: 0 };

/** Turns an upstream's bytes into the consumer's output, and calls its stream: `open`, `pass`, `finish`, `refuse`. */
export interface StreamTranslator<Out> {
  /** Adds chunks behind those that are still unread. */
  add(chunks: readonly Buffer[]): void;
  /** Whether any added bytes are still to be read, here or by another thread (`waitFor`). */
  readonly hasUnread: boolean;
  /** Bytes of memory that an unfinished event takes, and events that cannot be passed on yet. */
  readonly heldBytes: number;
  /** Reads on for a few milliseconds at the most, and passes on the output. @throws SseOverflow */
  read(): void;
  /** Reads the rest of a body that ended in an orderly way. @returns why the end came too early, if it knows. */
  end(): ApiError | null;
  /**
   * Ends an answer whose rest will not come, if it is complete without the rest.
   * @returns the end that was held back; null: the answer is not complete, or its end was passed to the stream already.
   */
  endEarly(): Out | null;
  /** Usage of the answer so far. */
  readonly usage: MessagesUsage;
  /** Whether the answer reported its own failure before any usage or text. It costs nothing, like a whole answer of that kind. */
  readonly isFree: boolean;
  /** Whether the answer has failed, and is read on only because its usage may still come. */
  readonly awaitsReport: boolean;
}

/** A client or the tool loop. */
export interface StreamConsumer<Out> {
  /** The client's. */
  readonly dialect: Dialect;
  /** The first event has come: later failures are reported in-band. */
  begin(): void;
  /** @returns false when the consumer wants no more before `drained` resolves. */
  take(out: Out): boolean;
  drained(): Promise<void>;
  observe(usage: MessagesUsage): void;
  /** The answer is complete: `last` may be passed on once the answer is charged. */
  complete(last: Out, usage: MessagesUsage): Promise<void>;
  /** The answer broke off. `usage`: what it cost; null: nothing. */
  abandon(error: ApiError, fault: CallFault, usage: MessagesUsage | null): Promise<void>;
  /** The code that reads the answer threw, a bug of ours: logs it and reports it to the client. `usage` as in `abandon`. */
  misread(cause: unknown, usage: MessagesUsage | null): Promise<void>;
}

export class ResponseStream<Out> implements BodyReader, Waiting {
  #phase: "opening" | "running" | "over" = "opening";
  readonly #answer: UpstreamAnswer;
  readonly #to: StreamConsumer<Out>;
  readonly #translator: StreamTranslator<Out>;
  /** The organization whose work this is; it takes turns with the others (`stream-turns.ts`). */
  readonly #owner: WorkOwner;
  readonly #held: HeldBytes;
  readonly #ended = Promise.withResolvers<void>();
  /** Why the upstream is paused: this stream waits for its turn, or for its reader to catch up. */
  readonly #waitsFor = new Set<"turn" | "reader">();
  /** Whether this stream waits in line for a turn, or to get into it (`#isAside`). */
  #isInLine = false;
  /** Whether another thread reads what comes next. */
  #isAside = false;
  /** Milliseconds of work since its last turn began. */
  #workedMs = 0;
  /** Chunks that came since the last `#work`. */
  #newChunks = 0;
  /** Set when the call is over but bytes of it are still unread. `fault` is null: the call ended as it should. */
  #left: { readonly fault: CallFault | null } | null = null;
  /** Whether the stream was stopped: unread bytes are dropped. */
  #isUnwanted = false;
  #observedAt = Number.NEGATIVE_INFINITY;
  /** The last usage that could be read. */
  #lastUsage: MessagesUsage = NOTHING;
  /** Whether `#ended` is settled, or will be by work that has begun. */
  #isEnding = false;
  /** The body while it begins with `{`, and so may be an error in place of a stream. null: it is none, or too long; undefined: only blanks came. */
  #object: GatheredPieces | null | undefined = undefined;

  constructor(
    answer: UpstreamAnswer,
    to: StreamConsumer<Out>,
    owner: WorkOwner,
    lease: Pick<BodyLease, "receive" | "giveBack">,
    translator: (stream: ResponseStream<Out>) => StreamTranslator<Out>,
  ) {
    this.#answer = answer;
    this.#to = to;
    this.#owner = owner;
    this.#held = new HeldBytes(lease);
    this.#translator = translator(this);
  }

  /**
   * Reads the answer. Resolves when it is over, however it ended. @throws AttemptFailure, or what a bug of ours threw, when
   * it fails before anything was passed on.
   */
  run(): Promise<void> {
    this.#answer.call.read(this);
    return this.#ended.promise;
  }

  /** Usage of the answer so far; where it cannot be read, the last that could. */
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

  // Called by the upstream's call.

  data(chunks: readonly Buffer[]): void {
    if (this.isOver) return;
    if (this.isOpening) this.#gather(chunks);
    this.#translator.add(chunks);
    this.#newChunks += chunks.length;
    if (this.#isInLine) return;
    const now = performance.now();
    if (this.#owner.mayWork(now)) this.#work(TURN_MS);
    else this.#waitInLine();
  }

  end(): void {
    if (!this.#readsFirst(null)) this.#close(null);
  }

  fail(fault: CallFault): void {
    if (!this.#readsFirst(fault)) this.#close(fault);
  }

  /** Puts off the end until what came before is read. @returns false when nothing is unread. */
  #readsFirst(fault: CallFault | null): boolean {
    if (this.isOver || this.#isUnwanted || !this.#translator.hasUnread) return false;
    this.#left = { fault };
    this.#owner.waitToEnd(this);
    return true;
  }

  turn(mostMs: number): void {
    if (this.#isAside) return;
    this.#isInLine = false;
    this.#workedMs = 0;
    if (this.isOver) return;
    if (this.#translator.hasUnread) this.#work(mostMs);
    if (!this.#isInLine) this.#goOn("turn");
  }

  /** Reads until nothing is unread, or `mostMs` are over. */
  #work(mostMs: number): void {
    try {
      const began = workedMs();
      let tookMs: number;
      do {
        this.#translator.read();
        tookMs = workedMs() - began;
      } while (this.#translator.hasUnread && tookMs < mostMs && !this.isOver && !this.#isAside);
      const now = performance.now();
      const ms = tookMs + this.#newChunks * CHUNK_MS;
      this.#newChunks = 0;
      this.#workedMs += ms;
      this.#owner.spend(ms, now);
      if (this.#phase === "running") this.#observe(now);
      if (this.isOver) return;
      if (this.#translator.awaitsReport) this.#answer.call.awaitReport();
      if (!this.#hasRoom()) return;
      if (this.#isAside) this.#waitAside();
      else if (this.#translator.hasUnread) this.#waitInLine();
      else if (this.#left !== null) this.#close(this.#left.fault);
      else if (this.#workedMs >= TURN_MS) this.#waitInLine();
    } catch (error) {
      if (error instanceof SseOverflow) this.overflow();
      else this.#misread(error);
    }
  }

  /** Counts what is held. @returns false without room for it: the answer is over then. */
  #hasRoom(): boolean {
    try {
      this.#held.hold(this.#translator.heldBytes);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#crowdedOut(error);
      return false;
    }
    return true;
  }

  /** Ends an answer for which this process has no room, which says nothing about its upstream. */
  #crowdedOut(error: ApiError): void {
    if (this.#completed()) return;
    const fault = "exhausted";
    this.#answer.broke(fault);
    if (this.isOpening)
      this.#reject(new AttemptFailure(error, { retry: null, status: fault, reason: fault }));
    else this.#abandon(error, fault);
    this.#answer.call.abort(fault);
  }

  #waitAside(): void {
    this.#isInLine = true;
    this.#halt("turn");
  }

  #waitInLine(): void {
    this.#waitAside();
    if (this.#left === null) this.#owner.wait(this);
    else this.#owner.waitToEnd(this);
  }

  /** Ends the answer after its call. */
  #close(fault: CallFault | null): void {
    if (this.isOver) return;
    try {
      if (fault === null) this.#endedWell();
      // The answer is complete already; only closing the connection failed (rule 2.13).
      else if (fault === "cancelled" || !this.#completed()) this.#broke(brokenStream(fault), fault);
    } catch (error) {
      this.#misread(error);
    }
  }

  #endedWell(): void {
    const early = this.#translator.end();
    if (this.isOver) return;
    if (this.#isAside) {
      this.#left = { fault: null };
      return this.#waitAside();
    }
    if (this.#completed()) return;
    const failure = this.isOpening ? this.#toldFailure() : null;
    if (failure !== null) return this.#reject(failure);
    const { call } = this.#answer;
    const fault = faultOfEnd(!this.isOpening, call);
    this.#broke(early ?? brokenStream(fault), fault, call.received === 0 ? "empty" : fault);
  }

  // Called by the translator.

  /** The first event has come. */
  open(): void {
    this.#phase = "running";
    this.#answer.accepted();
    this.#to.begin();
  }

  /** Reads no further until another thread has done this work. The translator has something unread until then. */
  waitFor(work: Promise<void>): void {
    this.#isAside = true;
    work.then(
      () => {
        this.#isAside = false;
        if (!this.isOver) this.#waitInLine();
      },
      (error: unknown) => this.#misread(error),
    );
  }

  pass(out: Out): void {
    // A client that takes nothing at all is cut by its sink.
    if (!this.#to.take(out)) this.#waitForReader();
  }

  /** The answer is complete with `last`. */
  finish(last: Out): void {
    if (this.isOver) return;
    const usage = this.#readUsage();
    this.#phase = "over";
    this.#end(this.#to.complete(last, usage));
    this.#answer.call.linger();
  }

  /** Stops the answer: the upstream goes on, but no more of it is wanted. */
  discard(): void {
    this.#stop("cancelled");
  }

  /** Ends the answer at an event that is an error, or that cannot be read. */
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
      else {
        const { own } = this.#answer;
        this.#answer.broke("cut", inBandReason(error, own), inBandWords(error, own().secrets));
      }
      this.#abandon(error, "garbage");
    }
    this.#answer.call.abort("cut");
  }

  /** Stops the answer: it is too long. */
  overflow(): void {
    this.#stop("too_large");
  }

  #stop(fault: CallFault): void {
    this.#isUnwanted = true;
    // A call that is over reports nothing more.
    if (this.#left === null) this.#answer.call.abort(fault);
    else this.#close(fault);
  }

  #waitForReader(): void {
    if (this.#waitsFor.has("reader") || this.isOver) return;
    this.#halt("reader");
    this.#to.drained().then(
      () => this.#goOn("reader"),
      (error: unknown) => this.#ended.reject(error),
    );
  }

  /** Pauses the upstream. The packet that is being read may add a second reason to wait: reading resumes when none is left. */
  #halt(waitsFor: "turn" | "reader"): void {
    if (this.#waitsFor.size === 0) this.#answer.call.pause();
    this.#waitsFor.add(waitsFor);
  }

  #goOn(waitsFor: "turn" | "reader"): void {
    if (this.#waitsFor.delete(waitsFor) && this.#waitsFor.size === 0) this.#answer.call.resume();
  }

  #gather(chunks: readonly Buffer[]): void {
    for (const chunk of chunks) {
      // Some upstreams send blank lines first, to show that they are still at work.
      const first = this.#object === undefined ? chunk.find((byte) => !isJsonSpace(byte)) : undefined;
      if (first !== undefined) this.#object = first === OPEN_OBJECT ? new GatheredPieces() : null;
      this.#object?.add(chunk);
    }
    if ((this.#object?.length ?? 0) > MAX_ERROR_BYTES) this.#object = null;
  }

  /** The error that came in place of a stream, handled like one by status. */
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
  #broke(error: ApiError, fault: CallFault, reason: string = fault): void {
    const isLeft = fault === "cancelled";
    if (!isLeft && fault !== "shutdown")
      metrics.streamFaults.inc({ dialect: this.#to.dialect, kind: faultKind(fault) });
    if (this.isOpening && !isLeft) this.#reject(unbegunAnswer(error, fault, reason));
    else {
      this.#answer.broke(fault);
      this.#abandon(error, fault);
    }
  }

  /** Ends an answer of which nothing was passed on: this is still a plain HTTP error, and another upstream may be asked. */
  #reject(failure: unknown): void {
    this.#phase = "over";
    this.#isEnding = true;
    this.#held.release();
    this.#ended.reject(failure);
  }

  /**
   * Ends the answer after the code that reads it threw, which is a bug of ours and says nothing of the upstream. The consumer gets
   * the error, and nothing that other requests need ends with it. Before the first event `run` throws it, to be logged there.
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
    this.#held.release();
    work.then(this.#ended.resolve, this.#ended.reject);
  }
}
