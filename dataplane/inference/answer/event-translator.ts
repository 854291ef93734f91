import type { CodecContext, EndCause, SseEvent, StreamReader, StreamWriter } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { objectOf, parseJson } from "../../dialects/fields.ts";
import { isForeignEvent } from "../../dialects/foreign-event.ts";
import type { MessagesEvent, MessagesUsage } from "../../dialects/messages/types.ts";
import { codecs } from "../../dialects/registry.ts";
import { StopCutter } from "../../dialects/cut-at-stops.ts";
import { corruptAnswer, cutAnswer } from "../../dialects/upstream-error.ts";
import { ApiError } from "../../lib/api-error.ts";
import { SseReader } from "../../lib/sse.ts";
import type { LeanEvents } from "../large/large-event.ts";
import { CHARACTER_BYTES } from "./held-bytes.ts";
import { EVENTS_AT_ONCE, type ResponseStream, type StreamTranslator } from "./response-stream.ts";

/** Where a stream's events go. */
export interface TranslatedEvents {
  /** What writes them to a client; null: nothing does. */
  readonly writer: Pick<StreamWriter, "keptCharacters"> | null;
  /** Called with the events that came, at least one. */
  readonly say: (events: readonly MessagesEvent[]) => void;
}

/** Reads an upstream's stream as Messages events, for conversion and for the tool loop. */
export class EventTranslator<Out> implements StreamTranslator<Out> {
  readonly #stream: ResponseStream<Out>;
  readonly #upstream: Dialect;
  readonly #reader: StreamReader;
  readonly #lean: LeanEvents;
  readonly #sse = new SseReader((frame) => !this.#stream.isOver && this.#lean.setsAside(frame, this.#stream));
  /** null: there are no stop sequences. */
  readonly #cutter: StopCutter | null;
  readonly #writer: TranslatedEvents["writer"];
  readonly #say: TranslatedEvents["say"];

  constructor(
    stream: ResponseStream<Out>,
    upstream: Dialect,
    context: CodecContext,
    lean: LeanEvents,
    { writer, say }: TranslatedEvents,
  ) {
    this.#stream = stream;
    this.#upstream = upstream;
    this.#reader = codecs[upstream].readStream(context);
    const { stops = [] } = context;
    this.#cutter = stops.length === 0 ? null : new StopCutter(stops);
    this.#lean = lean;
    this.#writer = writer;
    this.#say = say;
  }

  get usage(): MessagesUsage {
    return this.#reader.usage;
  }

  get isFree(): boolean {
    return this.#reader.isFree === true;
  }

  get awaitsReport(): boolean {
    return this.#reader.awaitsReport === true;
  }

  add(chunks: readonly Buffer[]): void {
    this.#sse.add(chunks);
  }

  get hasUnread(): boolean {
    return this.#sse.hasUnread || this.#lean.hasUnread;
  }

  get heldBytes(): number {
    const kept = this.#reader.keptCharacters + (this.#writer?.keptCharacters ?? 0);
    return this.#sse.heldBytes + this.#lean.heldBytes + kept * CHARACTER_BYTES;
  }

  read(): void {
    const lean = this.#lean.nextEvent();
    if (lean !== null) this.#read([lean]);
    // One at a time: the next one may take as long.
    if (this.#lean.hasUnread) return;
    let left = EVENTS_AT_ONCE;
    // The consumer waits for the first event: it is passed on before the chunks behind its own are read.
    while (this.#stream.isOpening && left > 0 && this.#sse.hasUnread) {
      left -= this.#sse.readChunk(left);
      this.#read(this.#sse.take());
    }
    if (this.#stream.isOver) return;
    while (left > 0 && this.#sse.hasUnread) left -= this.#sse.readChunk(left);
    this.#read(this.#sse.take());
  }

  end(): ApiError | null {
    this.#read(this.#sse.end());
    return this.#stream.isOver || this.#lean.hasUnread ? null : this.#end({ kind: "eof" });
  }

  endEarly(): null {
    this.#end({ kind: "failed", error: cutAnswer() });
    return null;
  }

  /** Passes on the last events of the reader. @returns why the answer is not complete. */
  #end(cause: EndCause): ApiError | null {
    try {
      this.#pass(this.#reader.end(cause));
      return null;
    } catch (error) {
      if (error instanceof ApiError) return error;
      throw error;
    }
  }

  /** Passes on the results of all events together. */
  #read(events: readonly SseEvent[]): void {
    const read: MessagesEvent[] = [];
    try {
      for (const event of events) {
        if (this.#stream.isOpening && read.length === 0) this.#check(event);
        read.push(...this.#reader.step(event));
      }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#pass(read);
      if (!this.#stream.isOver) this.#stream.refuse(error);
      return;
    }
    this.#pass(read);
  }

  /** @throws ApiError when the first event is of another dialect than the upstream's. */
  #check({ data }: SseEvent): void {
    const event = objectOf(parseJson(data));
    if (event !== null && isForeignEvent(this.#upstream, event))
      throw corruptAnswer("a first event of another dialect");
  }

  #pass(events: readonly MessagesEvent[]): void {
    if (events.length === 0 || this.#stream.isOver) return;
    if (this.#stream.isOpening) this.#stream.open();
    if (this.#cutter === null) return this.#say(events);
    const said = this.#cutter.push(events, () => this.usage);
    if (said.length > 0) this.#say(said);
    if (this.#cutter.isCut && events.every(({ type }) => type !== "message_stop")) this.#stream.discard();
  }
}
