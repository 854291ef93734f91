/**
 * Events of a stream that hold more than this thread reads in one step (rule 7.3): some eight megabytes of numbers or brackets, of
 * the log probabilities of a text's tokens, or of one text. Another thread makes them lean: it leaves out what nobody reads, and of
 * a relayed event the long texts, which it weighs; of a converted delta it makes several. So the bytes that pass stay as they are,
 * and what is looked at in one step is small. Pure.
 */
import { randomBytes } from "node:crypto";
import type { Dialect } from "../../dialects/dialect.ts";
import { type WeighText, weightOf, weightOfJson } from "../../dialects/output-estimate.ts";
import { BACKSLASH, COMMA, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from "../../lib/json-bytes.ts";
import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import { type Edit, splice } from "../../lib/json-splice.ts";
import { frameData, frameName, type SseFrame } from "../../lib/sse.ts";
import { ENCRYPTED_KEY } from "../inspect/reasoning.ts";
import { deltaInPieces, type Pieces } from "./long-delta.ts";

/** Most values of an event that are read in this thread, each some hundred nanoseconds for each reader. */
export const MOST_VALUES = 16_384;
/** Most escaped characters, each some twenty nanoseconds for each reader. */
const MOST_ESCAPES = 8 * MOST_VALUES;
/** Largest event that is read in this thread: to convert a text of so much takes some fifteen milliseconds. */
const MOST_BYTES = 2 * 1024 * 1024;
/** A longer text of a lean event is cut. */
const LONG_TEXT_BYTES = 64 * 1024;

/** Whether an event holds more than is read in this thread; looks no further than that. */
export function isHeavy(frame: SseFrame): boolean {
  // Joining very many lines would take as long. No upstream writes long events in several.
  if (frame.dataLines > 1) return true;
  const bytes = frame.bytes.subarray(frame.dataStart, frame.dataEnd);
  return bytes.length > MOST_BYTES || holdsManyEscapes(bytes) || holdsManyValues(bytes);
}

function holdsManyEscapes(bytes: Buffer): boolean {
  const first = bytes.indexOf(BACKSLASH);
  if (first === -1) return false;
  let escapes = 0;
  for (let at = first; at < bytes.length && escapes <= MOST_ESCAPES; at += 1)
    if (bytes[at] === BACKSLASH) {
      escapes += 1;
      at += 1;
    }
  return escapes > MOST_ESCAPES;
}

function holdsManyValues(bytes: Buffer): boolean {
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
  /** Whether all of it could be read. */
  readonly isRead: boolean;
  /** Stands, with an index and `MARK_END`, in place of each long text of a relayed event. */
  readonly mark: string;
  /** Weights of the texts that were cut. */
  readonly weights: readonly number[];
  /** A converted delta with a long text, as the data of several; null: its one form is `body`. */
  readonly pieces: Pieces | null;
}

/** What an event is read for. */
export interface LeanReading {
  /** The upstream's. */
  readonly dialect: Dialect;
  /** Whether the event passes as it is; otherwise it is converted, and all of its texts are read. */
  readonly isRelayed: boolean;
}

/** Stands in place of data of which nothing can be told. */
export const nothingTold: LeanData = {
  body: Buffer.from("{"),
  cuts: [],
  line: null,
  isRead: false,
  mark: "",
  weights: [],
  pieces: null,
};
/** Ends lean data that is no JSON, or would still hold too many values, where that showed. */
const BROKEN = Buffer.from("!");

const MARK_BYTES = 16;
const MARK_END = ";";

export function leanData(bytes: Buffer, places: FramePlaces, reading: LeanReading): LeanData {
  const frame = { ...places, bytes };
  const line = frame.dataLines > 1 ? oneLine(frame) : null;
  const data =
    line === null ? frameData(frame) : line.subarray(lineStart(frame), line.length - END_OF_EVENT.length);
  // Nobody can foresee it, so that no text holds it.
  const mark = randomBytes(MARK_BYTES).toString("hex");
  const unread = new Unread(data, mark, reading.isRelayed);
  const isRead = unread.lookThrough();
  const read = isRead ? data : data.subarray(0, unread.reader.position);
  const { edits, texts } = unread;
  const body = splice(read, edits);
  const lean = { cuts: cutsOf(edits), line, isRead, mark };
  if (!reading.isRelayed && isRead && texts.length === 1) {
    const [text] = texts as [Span];
    const marked = splice(data, inOrder([...edits, { ...text, text: mark }]));
    const pieces = deltaInPieces(reading.dialect, marked, mark, data.subarray(text.start, text.end));
    if (pieces !== null) return { ...lean, body: Buffer.alloc(0), weights: [], pieces };
  }
  return {
    ...lean,
    body: isRead ? body : Buffer.concat([body, BROKEN]),
    weights: reading.isRelayed ? texts.map(({ start, end }) => weightOfJson(data, start, end)) : [],
    pieces: null,
  };
}

const inOrder = (edits: Edit[]): Edit[] => edits.sort((one, other) => one.start - other.start);

/** Returns, in turn, where in the edited data something is shorter than it was, and by how many bytes. */
function cutsOf(edits: readonly Edit[]): number[] {
  const cuts: number[] = [];
  let left = 0;
  for (const { start, end, text } of edits) {
    const less = end - start - text.length;
    cuts.push(start - left + text.length, less);
    left += less;
  }
  return cuts;
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

/** Members whose texts are never cut: blobs that are sealed, what names something, and what an error says. */
const wholeTexts: ReadonlySet<string> = new Set([
  "code",
  "data",
  "encrypted_content",
  "id",
  "message",
  "model",
  "param",
  "service_tier",
  "signature",
  "type",
]);
/** Members whose inner texts are never cut: an error's are told, those of arguments are weighed as JSON. */
const wholeMembers: ReadonlySet<string> = new Set(["arguments", "error", "input"]);

class TooMany extends Error {}

/** An event, the answer in it, something in these, or something in a member that is read for its blobs alone: all of that is. */
type Level = "event" | "answer" | "inner" | "blobs";

/** Finds the contents of the lists and objects of an event that nobody reads, and its long texts. */
class Unread {
  readonly reader: JsonReader;
  /** Leave out what nobody reads, and the texts that are cut. */
  readonly edits: Edit[] = [];
  /** The insides of the long texts. */
  readonly texts: Span[] = [];
  readonly #mark: string;
  /** Whether long texts are cut, and unread blobs are sealed. */
  readonly #isRelayed: boolean;
  /** Values that are read. */
  #values = 0;

  constructor(data: Buffer, mark: string, isRelayed: boolean) {
    this.reader = new JsonReader(data, "told");
    this.#mark = mark;
    this.#isRelayed = isRelayed;
  }

  /** @returns false where the data is no JSON, or holds too many values besides; the reader is then at the last value that it could read. */
  lookThrough(): boolean {
    try {
      this.#look("event", true);
      this.reader.end();
      return true;
    } catch (error) {
      if (error instanceof TooMany || error instanceof JsonFault) return false;
      throw error;
    }
  }

  /** Looks through the value ahead. @throws TooMany, JsonFault */
  #look(level: Level, mayCut: boolean): void {
    const { reader } = this;
    this.#count();
    const kind = reader.kind();
    if (kind === "array") reader.array(() => this.#look(level === "blobs" ? level : "inner", mayCut));
    else if (kind === "object") reader.object((key) => this.#member(key, level, mayCut));
    else if (kind === "string" && mayCut) this.#text();
    else reader.skip();
  }

  #text(): void {
    const { reader } = this;
    const start = reader.position + 1;
    reader.skip();
    const end = reader.position - 1;
    if (end - start <= LONG_TEXT_BYTES) return;
    if (this.#isRelayed)
      this.edits.push({ start, end, text: `${this.#mark}${this.texts.length}${MARK_END}` });
    this.texts.push({ start, end });
  }

  #member(key: string, level: Level, mayCut: boolean): void {
    const { reader } = this;
    const kind = reader.kind();
    const isText = kind === "string";
    const cuts = mayCut && !(isText ? wholeTexts : wholeMembers).has(key);
    if (level === "blobs") return this.#look(level, cuts);
    const isRead = level === "inner" ? !logprobMembers.has(key) : readMembers.has(key);
    if (isRead || (kind !== "array" && kind !== "object"))
      return this.#look(level === "event" && answerMembers.has(key) ? "answer" : "inner", cuts);
    this.#count();
    const valueStart = reader.position;
    const start = valueStart + 1;
    reader.skip();
    const end = reader.position - 1;
    if (end <= start) return;
    // What has to be sealed (rule 7.12) is read.
    if (!this.#isRelayed || !reader.bytes.subarray(start, end).includes(ENCRYPTED_KEY, 0, "latin1")) {
      this.edits.push({ start, end, text: "" });
      return;
    }
    reader.position = valueStart;
    this.#look("blobs", cuts);
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
  /** Whether all of it could be read. */
  readonly isRead: boolean;
  /** The data of the events that are read in its place, in order; null: it is read itself. */
  readonly pieces: Pieces | null;
  readonly #cuts: readonly number[];
  readonly #mark: string;
  readonly #weights: readonly number[];

  /** @param frame the event as it came; its bytes stay, the object itself may be used again. */
  constructor(frame: SseFrame, { body, cuts, line, isRead, mark, weights, pieces }: LeanData) {
    this.whole = line === null ? { ...frame } : lineFrame(frame, line);
    const before = Buffer.from(fieldsBefore(frame));
    this.bytes = Buffer.concat([before, body, Buffer.from(END_OF_EVENT)]);
    this.end = this.bytes.length;
    this.dataStart = before.length;
    this.dataEnd = before.length + body.length;
    ({ nameStart: this.nameStart, nameEnd: this.nameEnd } = namePlaces(before.length));
    this.closed = frame.closed;
    this.isRead = isRead;
    this.pieces = pieces;
    this.#cuts = cuts;
    this.#mark = mark;
    this.#weights = weights;
  }

  /** Whether texts were cut, so that their bytes here weigh nothing like they do (`weigh`). */
  get hasCutTexts(): boolean {
    return this.#weights.length > 0;
  }

  /** Weighs a text of this event: whole, where it was cut (output-estimate.ts). */
  weigh(text: string): number {
    if (!this.hasCutTexts) return weightOf(text);
    const [first = "", ...marked] = text.split(this.#mark);
    return marked.reduce((sum, part) => {
      const end = part.indexOf(MARK_END);
      return sum + (this.#weights[Number(part.slice(0, end))] ?? 0) + weightOf(part.slice(end + 1));
    }, weightOf(first));
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

/** Returns the function that weighs the texts of an event. */
export const weigherOf = (frame: SseFrame): WeighText =>
  frame instanceof LeanFrame ? (text) => frame.weigh(text) : weightOf;

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
