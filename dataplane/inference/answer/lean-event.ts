/**
 * Events of a stream that hold more values than this thread reads in one step (rule 7.3): some eight megabytes of numbers or
 * brackets, or of the log probabilities of a text's tokens. Another thread makes them lean: it leaves out what nobody reads. So the
 * bytes that pass stay as they are, and what is looked at is small. Pure.
 */
import { BACKSLASH, COMMA, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from "../../lib/json-bytes.ts";
import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import { splice } from "../../lib/json-splice.ts";
import { frameData, frameName, type SseFrame } from "../../lib/sse.ts";

/** Most values of an event that are read in this thread, each some hundred nanoseconds for each reader. */
export const MOST_VALUES = 16_384;

/** Whether an event holds more values than are read in this thread; looks no further than that. */
export function holdsMany(frame: SseFrame): boolean {
  // Joining very many lines would take as long. No upstream writes long events in several.
  if (frame.dataLines > 1) return true;
  const bytes = frame.bytes.subarray(frame.dataStart, frame.dataEnd);
  let values = 0;
  for (let at = 0; at < bytes.length && values <= MOST_VALUES; at += 1) {
    const byte = bytes[at];
    if (byte === COMMA || byte === OPEN_OBJECT || byte === OPEN_ARRAY) values += 1;
    if (byte !== QUOTE) continue;
    do {
      at = bytes.indexOf(QUOTE, at + 1);
      // Escaped quotes are searched for one by one: very many take as long as values.
      values += 1;
    } while (at !== -1 && isEscaped(bytes, at) && values <= MOST_VALUES);
    if (at === -1) break;
  }
  return values > MOST_VALUES;
}

function isEscaped(bytes: Buffer, quote: number): boolean {
  let at = quote - 1;
  while (bytes[at] === BACKSLASH) at -= 1;
  return (quote - at) % 2 === 0;
}

/** A frame's places within its bytes. */
export type FramePlaces = Omit<SseFrame, "bytes">;

/** A lean event, as another thread tells it. */
export interface LeanData {
  /** The event's data without what nobody reads; of one that cannot be read, the beginning of an object. */
  readonly body: Buffer;
  /** In turn: where in `body` something was left out, and how many bytes. */
  readonly cuts: readonly number[];
  /** The whole event with its data in one line, where it came in several; else null. */
  readonly line: Buffer | null;
}

/** Stands in place of data of which nothing can be told. */
export const nothingTold: LeanData = { body: Buffer.from("{"), cuts: [], line: null };
/** Ends lean data that is no JSON, or would still hold too many values, where that showed. */
const BROKEN = Buffer.from("!");

export function leanData(bytes: Buffer, places: FramePlaces): LeanData {
  const frame = { ...places, bytes };
  const line = frame.dataLines > 1 ? oneLine(frame) : null;
  const data =
    line === null ? frameData(frame) : line.subarray(lineStart(frame), line.length - END_OF_EVENT.length);
  const unread = new Unread(data);
  const isWhole = unread.lookThrough();
  const read = isWhole ? data : data.subarray(0, unread.reader.position);
  const cuts: number[] = [];
  let left = 0;
  for (const { start, end } of unread.places) {
    cuts.push(start - left, end - start);
    left += end - start;
  }
  const body = splice(
    read,
    unread.places.map((span) => ({ ...span, text: "" })),
  );
  return { body: isWhole ? body : Buffer.concat([body, BROKEN]), cuts, line };
}

const END_OF_EVENT = "\n\n";

/** Writes an event whose data came in several lines in one: between two lines JSON has white space. */
function oneLine(frame: SseFrame): Buffer {
  const data = frameData(frame);
  for (let at = data.indexOf(LF); at !== -1; at = data.indexOf(LF, at + 1)) data[at] = SPACE;
  return Buffer.concat([Buffer.from(fieldsBefore(frame)), data, Buffer.from(END_OF_EVENT)]);
}

const LF = 0x0a;
const SPACE = 0x20;

const fieldsBefore = (frame: SseFrame): string => {
  const name = frameName(frame);
  return `${name === "" ? "" : `${BEFORE_NAME}${name}\n`}${BEFORE_DATA}`;
};

const lineStart = (frame: SseFrame): number => Buffer.byteLength(fieldsBefore(frame));

/** Members of an event, and of the answer in it, that somebody reads and that hold values. */
const readMembers: ReadonlySet<string> = new Set([
  "annotation",
  "choices",
  "content",
  "content_block",
  "delta",
  "error",
  "incomplete_details",
  "item",
  "message",
  "output",
  "part",
  "response",
  "usage",
]);
/** Log probabilities, wherever they stand. */
const logprobMembers: ReadonlySet<string> = new Set(["logprobs", "top_logprobs"]);
/** Members of an event that hold its answer. */
const answerMembers: ReadonlySet<string> = new Set(["message", "response"]);

class TooMany extends Error {}

/** An event, the answer in it, or something in these. */
type Level = "event" | "answer" | "inner";

/** Finds the contents of the lists and objects of an event that nobody reads. */
class Unread {
  readonly reader: JsonReader;
  readonly places: Span[] = [];
  /** Values that are read. */
  #values = 0;

  constructor(data: Buffer) {
    this.reader = new JsonReader(data, "told");
  }

  /** @returns false where the data is no JSON, or holds too many values besides; the reader is then at the last value that it could read. */
  lookThrough(): boolean {
    try {
      this.#look("event");
      this.reader.end();
      return true;
    } catch (error) {
      if (error instanceof TooMany || error instanceof JsonFault) return false;
      throw error;
    }
  }

  /** Looks through the value ahead. @throws TooMany, JsonFault */
  #look(level: Level): void {
    const { reader } = this;
    this.#count();
    const kind = reader.kind();
    if (kind === "array") reader.array(() => this.#look("inner"));
    else if (kind === "object") reader.object((key) => this.#member(key, level));
    else reader.skip();
  }

  #member(key: string, level: Level): void {
    const { reader } = this;
    const kind = reader.kind();
    const isRead = level === "inner" ? !logprobMembers.has(key) : readMembers.has(key);
    if (isRead || (kind !== "array" && kind !== "object"))
      return this.#look(level === "event" && answerMembers.has(key) ? "answer" : "inner");
    this.#count();
    const start = reader.position + 1;
    reader.skip();
    const end = reader.position - 1;
    if (end > start) this.places.push({ start, end });
  }

  #count(): void {
    this.#values += 1;
    if (this.#values > MOST_VALUES) throw new TooMany();
  }
}

/**
 * A lean event as a frame, whose data is one line. What is made of it, by the places of the lean data, is made of the whole
 * event: `spanInWhole`, `inWholeData`.
 */
export class LeanFrame implements SseFrame {
  readonly whole: SseFrame;
  readonly bytes: Buffer;
  readonly start = 0;
  readonly end: number;
  readonly nameStart: number;
  readonly nameEnd: number;
  readonly dataStart: number;
  readonly dataEnd: number;
  readonly dataLines = 1;
  readonly closed: boolean;
  readonly #cuts: readonly number[];

  /** @param frame the event as it came; its bytes stay, the object itself may be used again. */
  constructor(frame: SseFrame, { body, cuts, line }: LeanData) {
    this.whole = line === null ? { ...frame } : lineFrame(frame, line);
    const before = Buffer.from(fieldsBefore(frame));
    this.bytes = Buffer.concat([before, body, Buffer.from(END_OF_EVENT)]);
    this.end = this.bytes.length;
    this.dataStart = before.length;
    this.dataEnd = before.length + body.length;
    ({ nameStart: this.nameStart, nameEnd: this.nameEnd } = namePlaces(before.length));
    this.closed = frame.closed;
    this.#cuts = cuts;
  }

  /** The place in `whole.bytes` of one in the lean frame's bytes. */
  spanInWhole({ start, end }: Span): Span {
    const { dataStart } = this.whole;
    const data = this.inWholeData({ start: start - this.dataStart, end: end - this.dataStart });
    return { start: data.start + dataStart, end: data.end + dataStart };
  }

  /** The place in the whole event's data of one in the lean data. */
  inWholeData<Place extends Span>(place: Place): Place {
    return { ...place, start: this.#moved(place.start), end: this.#moved(place.end) };
  }

  #moved(at: number): number {
    let moved = at;
    for (let cut = 0; cut < this.#cuts.length && (this.#cuts[cut] as number) <= at; cut += 2)
      moved += this.#cuts[cut + 1] as number;
    return moved;
  }
}

const [BEFORE_NAME, BEFORE_DATA] = ["event: ", "data: "];

/** Where the name stands in front of data that begins at `dataStart`. */
const namePlaces = (dataStart: number): Pick<SseFrame, "nameStart" | "nameEnd"> =>
  dataStart === BEFORE_DATA.length
    ? { nameStart: 0, nameEnd: 0 }
    : { nameStart: BEFORE_NAME.length, nameEnd: dataStart - BEFORE_DATA.length - 1 };

/** The event as it came. */
export const wholeFrame = (frame: SseFrame): SseFrame => (frame instanceof LeanFrame ? frame.whole : frame);

/** The frame of an event that was written anew in one line. */
function lineFrame(frame: SseFrame, line: Buffer): SseFrame {
  const dataStart = lineStart(frame);
  return {
    bytes: line,
    start: 0,
    end: line.length,
    ...namePlaces(dataStart),
    dataStart,
    dataEnd: line.length - END_OF_EVENT.length,
    dataLines: 1,
    closed: true,
  };
}
