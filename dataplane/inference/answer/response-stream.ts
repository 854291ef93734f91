/**
 * One upstream's streamed answer on its way to whoever it is for: a client that gets it relayed or converted, or the
 * tool loop (design.md §4.4). Here stands what these have in common: phases, back-pressure, what is observed, what it
 * costs, and what becomes of an answer that breaks off.
 *
 *   opening ──first event──> running ──its end──> over
 *      └──an error, garbage or nothing: another upstream may be asked ──^
 */
import { isCorrupt, withoutOwn } from "../../dialects/upstream-error.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { objectOf, parseJson } from "../../dialects/fields.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import type { ApiError } from "../../lib/api-error.ts";
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
import { brokenStream, faultKind, faultOfEnd, isOwed, unbegunAnswer } from "./broken-answer.ts";
import { isErrorBody } from "./whole-answer.ts";

/** Time between two observations of a running stream; after a crash of this process the last one is charged. */
const OBSERVE_MS = 1_000;
/** What undici and this process' calls took for an HTTP chunk that came, before it is read here. */
const CHUNK_MS = 0.001;

/** So many events are read at once before it is looked how long that took, and what they bring is passed on together. */
export const EVENTS_AT_ONCE = 256;

const NOTHING: MessagesUsage = { input_tokens: 0, output_tokens: 0 };

/** Turns an upstream's bytes into what the consumer gets, and reports to its stream: `open`, `pass`, `finish`, `refuse`. */
export interface StreamTranslator<Out> {
  /** Takes what came at once, behind what came before. */
  add(chunks: readonly Buffer[]): void;
  /** Whether any of it is still to be read. */
  readonly hasUnread: boolean;
  /** Reads on, a few milliseconds at the most, and passes on what that brought. @throws SseOverflow */
  read(): void;
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

export class ResponseStream<Out> implements BodyReader, Waiting {
  #phase: "opening" | "running" | "over" = "opening";
  readonly #answer: UpstreamAnswer;
  readonly #to: StreamConsumer<Out>;
  readonly #translator: StreamTranslator<Out>;
  /** The organization whose work this is: others have their turns between its own (`stream-turns.ts`). */
  readonly #owner: WorkOwner;
  readonly #ended = Promise.withResolvers<void>();
  /** Nothing is read from the upstream before: others have had a turn, the reader has caught up. */
  readonly #waitsFor = new Set<"turn" | "reader">();
  /** Waits for its turn in line, perhaps with something to read. */
  #isInLine = false;
  /** Milliseconds of work since it last waited for a turn. */
  #workedMs = 0;
  /** Chunks that came since it last worked. */
  #newChunks = 0;
  /** The call is over, but what came before is still to be read. `fault` is null: it ended as it should. */
  #left: { readonly fault: CallFault | null } | null = null;
  /** Nobody wants what is still to be read. */
  #isUnwanted = false;
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
    owner: WorkOwner,
    translator: (stream: ResponseStream<Out>) => StreamTranslator<Out>,
  ) {
    this.#answer = answer;
    this.#to = to;
    this.#owner = owner;
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

  /** What came before the end is read before it, in its turn. */
  #readsFirst(fault: CallFault | null): boolean {
    if (this.isOver || this.#isUnwanted || !this.#translator.hasUnread) return false;
    this.#left = { fault };
    this.#owner.waitToEnd(this);
    return true;
  }

  turn(mostMs: number): void {
    this.#isInLine = false;
    this.#workedMs = 0;
    if (this.isOver) return;
    if (this.#translator.hasUnread) this.#work(mostMs);
    if (!this.#isInLine) this.#goOn("turn");
  }

  /** Reads what there is, as long as it has the time. */
  #work(mostMs: number): void {
    try {
      const began = workedMs();
      let tookMs: number;
      do {
        this.#translator.read();
        tookMs = workedMs() - began;
      } while (this.#translator.hasUnread && tookMs < mostMs && !this.isOver);
      const now = performance.now();
      const ms = tookMs + this.#newChunks * CHUNK_MS;
      this.#newChunks = 0;
      this.#workedMs += ms;
      this.#owner.spend(ms, now);
      if (this.#phase === "running") this.#observe(now);
      if (this.isOver) return;
      if (this.#translator.hasUnread) this.#waitInLine();
      else if (this.#left !== null) this.#close(this.#left.fault);
      else if (this.#workedMs >= TURN_MS) this.#waitInLine();
    } catch (error) {
      if (error instanceof SseOverflow) this.overflow();
      else this.#misread(error);
    }
  }

  #waitInLine(): void {
    this.#isInLine = true;
    this.#halt("turn");
    if (this.#left === null) this.#owner.wait(this);
    else this.#owner.waitToEnd(this);
  }

  /** The call is over, and what came was read. */
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
    if (this.#completed()) return;
    const failure = this.isOpening ? this.#toldFailure() : null;
    if (failure !== null) return this.#reject(failure);
    const fault = faultOfEnd(!this.isOpening, this.#answer.call);
    this.#broke(early ?? brokenStream(fault), fault);
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

  /** The upstream goes on, but nobody wants more of it. */
  discard(): void {
    this.#stop("cancelled");
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
    this.#stop("too_large");
  }

  #stop(fault: CallFault): void {
    this.#isUnwanted = true;
    // A call that is over tells nothing more.
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

  /** What the packet at hand still brings may give another cause to wait: nothing more is asked for before the last is over. */
  #halt(waitsFor: "turn" | "reader"): void {
    if (this.#waitsFor.size === 0) this.#answer.call.pause();
    this.#waitsFor.add(waitsFor);
  }

  #goOn(waitsFor: "turn" | "reader"): void {
    if (this.#waitsFor.delete(waitsFor) && this.#waitsFor.size === 0) this.#answer.call.resume();
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
