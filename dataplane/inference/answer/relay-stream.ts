/**
 * Relay of a stream: bytes pass through untouched, save for the model's name and an injected usage chunk
 * (design.md §4.2).
 */
import type { Dialect } from "../../dialects/dialect.ts";
import { chatErrorChunk, messagesErrorEvent, responsesErrorEvent } from "../../dialects/errors.ts";
import { objectOf, parseJson } from "../../dialects/fields.ts";
import { isForeignEvent } from "../../dialects/foreign-event.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import { corruptAnswer, inBandError } from "../../dialects/upstream-error.ts";
import { countedUsage } from "../../dialects/usage.ts";
import type { ApiError } from "../../lib/api-error.ts";
import type { Span } from "../../lib/json-reader.ts";
import { frameData, LONG_EVENT_BYTES, SseScanner, type SseFrame } from "../../lib/sse.ts";
import { metrics } from "../../telemetry/metrics.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import type { AnswerBytes } from "./answer-bytes.ts";
import type { RelayJob } from "./answer-job.ts";
import { LeanEvents } from "../large/large-event.ts";
import { ClientStream } from "./client-stream.ts";
import type { LeanFrame } from "./lean-frame.ts";
import { EVENTS_AT_ONCE, ResponseStream, type StreamTranslator } from "./response-stream.ts";
import { editedFrame, mayHoldBlobs } from "./seal-answer.ts";
import { streamTap } from "./stream-taps.ts";
import { streamTurns } from "./stream-turns.ts";
import { PASS, publicNames, type FrameAction, type StreamTap } from "./usage-tap.ts";

/** Most bytes of memory that events take that are held before the first one, or come from the terminal event on. */
const MAX_HELD_BYTES = 16 * 1024 * 1024;
/** What an event takes besides its bytes while it is held: it may be a blank line. */
const HELD_EVENT_BYTES = 512;

/**
 * Relays a stream. Resolves when it is over, however it ended.
 * @throws AttemptFailure while nothing has been sent to the client.
 */
export function relayStream(job: RelayJob, answer: UpstreamAnswer): Promise<void> {
  const tap = streamTap(job.dialect, job);
  const client = new ClientStream(job, answer.upstream.name, (error) => errorEvent(job, error, tap));
  return new ResponseStream<AnswerBytes>(
    answer,
    client,
    streamTurns.owner(job.organizationId),
    job.lease,
    (stream) => new RelayTranslator(job, stream, tap),
  ).run();
}

/** Writes the event that ends a stream with an error; in Responses with the next `sequence_number` (rule 2.13). */
function errorEvent({ dialect, requestId }: RelayJob, error: ApiError, { nextNumber }: StreamTap): string {
  switch (dialect) {
    case "messages":
      return messagesErrorEvent(error, requestId);
    case "chat":
      return chatErrorChunk(error);
    case "responses":
      return responsesErrorEvent(error, nextNumber);
  }
}

/** Actions that do not end the answer. */
type Going = Exclude<FrameAction, { kind: "error" }>;

class RelayTranslator implements StreamTranslator<AnswerBytes> {
  readonly #job: RelayJob;
  readonly #stream: ResponseStream<AnswerBytes>;
  readonly #tap: StreamTap;
  readonly #scanner = new SseScanner((frame) => this.#frame(frame));
  readonly #publicModel: Buffer;
  #countedFaults = 0;
  /** Whether the terminal event has come: it and what follows leave once the answer is charged. */
  #isEnding = false;
  /** Bytes that wait for the first event (comments), or for the charge (the end). */
  #held: (Buffer | string)[] = [];
  #heldBytes = 0;
  /** Pieces to send at the next flush. */
  #out: (Buffer | string)[] = [];
  /** Buffer of the last piece to send, which ends at `#runEnd` and may still grow; null: none. */
  #run: Buffer | null = null;
  #runStart = 0;
  #runEnd = 0;
  readonly #lean: LeanEvents;

  constructor(job: RelayJob, stream: ResponseStream<AnswerBytes>, tap: StreamTap) {
    this.#job = job;
    this.#stream = stream;
    this.#tap = tap;
    this.#lean = new LeanEvents(job.place, job.lease, { dialect: job.dialect, isRelayed: true });
    this.#publicModel = Buffer.from(JSON.stringify(job.model));
  }

  get usage(): MessagesUsage {
    const { usage, tier, final } = this.#tap;
    return countedUsage(usage, this.#job.usage, () => this.#tap.written, final, tier);
  }

  get isFree(): boolean {
    return this.#tap.isFree;
  }

  get awaitsReport(): boolean {
    return this.#tap.awaitsReport;
  }

  add(chunks: readonly Buffer[]): void {
    this.#scanner.add(chunks);
  }

  get hasUnread(): boolean {
    return this.#scanner.hasUnread || this.#lean.hasUnread;
  }

  get heldBytes(): number {
    return this.#scanner.heldBytes + this.#tap.heldBytes + this.#heldBytes;
  }

  read(): void {
    this.#readLean();
    for (let left = EVENTS_AT_ONCE; left > 0 && this.#scanner.hasUnread;)
      left -= this.#scanner.readChunk(left);
    if (!this.#stream.isOver) this.#flush();
  }

  end(): null {
    this.#scanner.end();
    if (!this.#stream.isOver) this.#flush();
    return null;
  }

  endEarly(): AnswerBytes | null {
    if (!this.#isEnding) return null;
    const { faults } = this.#tap;
    const { dialect } = this.#job;
    if (faults > this.#countedFaults)
      metrics.streamFaults.inc({ dialect, kind: "tap" }, faults - this.#countedFaults);
    this.#countedFaults = faults;
    return [...this.#held, this.#tap.missingEnd];
  }

  #finish(): void {
    const end = this.endEarly();
    if (end !== null) this.#stream.finish(end);
  }

  #frame(frame: SseFrame): void {
    if (this.#stream.isOver) return;
    if (frame.end - frame.start > LONG_EVENT_BYTES && this.#lean.setsAside(frame, this.#stream))
      return this.#scanner.breakOff();
    // The beginning of an event that never ended must not reach a client's JSON parser.
    if (!frame.closed && !isWhole(frame)) return;
    this.#take(frame, this.#see(frame), frame);
  }

  #readLean(): void {
    const lean = this.#lean.take();
    if (lean === null || (!lean.closed && !isWhole(lean))) return;
    const { dialect, seal } = this.#job;
    // Nobody may see a provider's blob unsealed (rule 7.12).
    if (!lean.isRead && seal !== null && mayHoldBlobs(dialect, frameData(lean.whole)))
      return this.#stream.refuse(corruptAnswer("an event that cannot be read"));
    if (lean.hasCutTexts) this.#tap.forgetShapes();
    this.#take(lean.whole, inWhole(lean, this.#see(lean)), lean);
  }

  /** @param read what is looked at of the frame: itself, or its lean form. */
  #take(frame: SseFrame, inspected: FrameAction, read: SseFrame): void {
    const stream = this.#stream;
    if (inspected.kind === "error") {
      this.#flush();
      const body = objectOf(parseJson(inspected.data.toString("utf8")));
      return stream.refuse(body === null ? corruptAnswer("an error that cannot be read") : inBandError(body));
    }
    if (this.#isEnding) {
      this.#hold(frame, inspected);
      if (inspected.kind === "terminal" && inspected.last) this.#finish();
      return;
    }
    const isFirst = stream.isOpening;
    if (isFirst) {
      if (frame.dataLines === 0) return this.#hold(frame, PASS);
      // Bytes that are no answer at all are not passed on (rule 1.6).
      if (!isReadable(read, this.#job.dialect))
        return stream.refuse(corruptAnswer("a first event that is none of its dialect"));
      stream.open();
      this.#out = this.#held;
      this.#held = [];
      this.#heldBytes = 0;
    }
    this.#send(frame, inspected);
    // A client waits for the first event: it is sent before the events that came with it are read.
    if (isFirst && !stream.isOver) this.#flush();
  }

  #send(frame: SseFrame, seen: Going): void {
    switch (seen.kind) {
      case "pass":
        return this.#pass(frame);
      case "patch":
        return this.#patch(frame, seen.models);
      case "replace":
        return this.#replace(frame, seen.bytes);
      case "swallow":
        return this.#endRun();
      case "terminal":
        this.#flush();
        this.#isEnding = true;
        this.#hold(frame, seen);
        if (seen.last) this.#finish();
    }
  }

  /** A tap that throws is a bug of ours, and no reason to break the client's stream. */
  #see(frame: SseFrame): FrameAction {
    try {
      const seen = this.#tap.inspect(frame);
      return frame.dataLines > 1 ? this.#joined(frame, seen) : seen;
    } catch (error) {
      metrics.streamFaults.inc({ dialect: this.#job.dialect, kind: "tap" });
      this.#job.log.error(
        { request_id: this.#job.requestId, err: error },
        "a stream's event could not be looked at",
      );
      return PASS;
    }
  }

  /** Rewrites a frame of several data lines: the models' spans count in its joined data, not in the frame. */
  #joined(frame: SseFrame, seen: FrameAction): FrameAction {
    if ((seen.kind !== "patch" && seen.kind !== "terminal") || seen.models.length === 0) return seen;
    const names = publicNames(frame, seen.models, this.#job.model);
    const bytes = (seen.kind === "terminal" ? seen.bytes : undefined) ?? editedFrame(frame, names);
    return seen.kind === "patch" ? { kind: "replace", bytes } : { ...seen, bytes };
  }

  #pass(frame: SseFrame): void {
    this.#extend(frame.bytes, frame.start, frame.end);
    if (!frame.closed) this.#close();
  }

  /** Adds bytes to the run if they follow it, else begins a new run. */
  #extend(bytes: Buffer, start: number, end: number): void {
    if (this.#run !== bytes || this.#runEnd !== start) {
      this.#endRun();
      this.#run = bytes;
      this.#runStart = start;
    }
    this.#runEnd = end;
  }

  /** Adds the blank line that the last event lacks: without it no client would take the event. */
  #close(): void {
    this.#endRun();
    this.#out.push("\n\n");
  }

  #patch(frame: SseFrame, models: readonly Span[]): void {
    let from = frame.start;
    for (const { start, end } of models) {
      this.#extend(frame.bytes, from, start);
      this.#endRun();
      this.#out.push(this.#publicModel);
      from = end;
    }
    this.#extend(frame.bytes, from, frame.end);
    if (!frame.closed) this.#close();
  }

  #replace(frame: SseFrame, bytes: Buffer): void {
    this.#endRun();
    this.#out.push(bytes);
    if (!frame.closed) this.#close();
  }

  #patched(frame: SseFrame, seen: Going): (Buffer | string)[] {
    const { bytes, start, end } = frame;
    const tail = frame.closed ? [] : ["\n\n"];
    if ("bytes" in seen && seen.bytes !== undefined) return [seen.bytes, ...tail];
    const pieces: (Buffer | string)[] = [];
    let from = start;
    for (const model of "models" in seen ? seen.models : []) {
      pieces.push(bytes.subarray(from, model.start), this.#publicModel);
      from = model.end;
    }
    return [...pieces, bytes.subarray(from, end), ...tail];
  }

  #hold(frame: SseFrame, seen: Going): void {
    this.#heldBytes += frame.end - frame.start + HELD_EVENT_BYTES;
    if (this.#heldBytes > MAX_HELD_BYTES) return this.#stream.overflow();
    if (seen.kind !== "swallow") this.#held.push(...this.#patched(frame, seen));
  }

  #endRun(): void {
    const bytes = this.#run;
    if (bytes === null) return;
    this.#run = null;
    // Most upstreams send each event as an HTTP chunk. There are many, and a run of a whole chunk needs no view of it.
    const isWhole = this.#runStart === 0 && this.#runEnd === bytes.length;
    this.#out.push(isWhole ? bytes : bytes.subarray(this.#runStart, this.#runEnd));
  }

  /** Passes on all gathered pieces, in one write. */
  #flush(): void {
    this.#endRun();
    const out = this.#out;
    if (out.length === 0) return;
    this.#out = [];
    this.#stream.pass(out);
  }
}

/** What is done with a whole event, by what was seen of its lean form. */
function inWhole(lean: LeanFrame, seen: FrameAction): FrameAction {
  if (seen.kind !== "patch" && seen.kind !== "terminal") return seen;
  return { ...seen, models: seen.models.map((model) => lean.spanInWhole(model)) };
}

/** Whether the data of an unclosed frame is complete all the same. */
function isWhole(frame: SseFrame): boolean {
  const data = frameData(frame).toString("utf8");
  return data === "[DONE]" || parseJson(data) !== undefined;
}

/** Whether a first frame holds an event of this dialect, or no data. `[DONE]` is not one: nothing has begun that it could end. */
function isReadable(frame: SseFrame, dialect: Dialect): boolean {
  const data = frameData(frame).toString("utf8");
  if (data === "") return true;
  const event = objectOf(parseJson(data));
  return event !== null && !isForeignEvent(dialect, event);
}
