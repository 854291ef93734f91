/**
 * Events of a stream that hold more than this thread reads in one step (rule 7.3): some eight megabytes of numbers or brackets, of
 * the log probabilities of a text's tokens, or of one text. Another thread makes them lean: it leaves out what nobody reads, and of
 * a relayed event the long texts, which it weighs; of a converted delta it makes several. So the bytes that pass stay as they are,
 * and what is looked at in one step is small. Pure, but for the mark that it makes up for each event.
 */
import { randomBytes } from "node:crypto";
import type { Dialect } from "../../dialects/dialect.ts";
import { weightOfJson } from "../../dialects/output-estimate.ts";
import { BACKSLASH, COMMA, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from "../../lib/json-bytes.ts";
import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import { type Edit, splice } from "../../lib/json-splice.ts";
import { frameData, type SseFrame } from "../../lib/sse.ts";
import { ENCRYPTED_KEY } from "../inspect/reasoning.ts";
import { END_OF_EVENT, fieldsBefore, type LeanData, lineStart, MARK_END } from "./lean-frame.ts";
import { deltaInPieces } from "./long-delta.ts";

/** Most values of an event that are read in this thread, each some hundred nanoseconds for each reader. */
const MOST_VALUES = 16_384;
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

/** What an event is read for. */
export interface LeanReading {
  /** The upstream's. */
  readonly dialect: Dialect;
  /** Whether the event passes as it is; otherwise it is converted, and all of its texts are read. */
  readonly isRelayed: boolean;
}

/** Ends lean data that is no JSON, or would still hold too many values, where that showed. */
const BROKEN = Buffer.from("!");

const MARK_BYTES = 16;

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

/** Writes an event whose data came in several lines in one: between two lines JSON has white space. */
function oneLine(frame: SseFrame): Buffer {
  const data = frameData(frame);
  for (let at = data.indexOf(LF); at !== -1; at = data.indexOf(LF, at + 1)) data[at] = SPACE;
  return Buffer.concat([Buffer.from(fieldsBefore(frame)), data, Buffer.from(END_OF_EVENT)]);
}

const LF = 0x0a;
const SPACE = 0x20;

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
