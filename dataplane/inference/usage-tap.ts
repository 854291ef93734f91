/**
 * Reads what an answer says of itself while its bytes pass: usage, the model's name, its end and its errors. One
 * tap for each dialect, whole and streamed. A tap never throws and never breaks a stream (design.md §4.2): what it
 * cannot read is passed on, and billed from an estimate.
 */
import type { TokenUsage } from "../billing/meter.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { MessagesUsage } from "../dialects/messages/types.ts";
import { readChatUsage, readMessagesUsage, readResponsesUsage } from "../dialects/usage.ts";
import { JsonFault, JsonReader, type Span } from "../lib/json-splice.ts";
import { frameData, frameName, type SseFrame } from "../lib/sse.ts";

/** Bytes of text that make a token, where an upstream reports nothing. */
const BYTES_PER_TOKEN = 4;
/** Framing and envelope of a delta are learned from this many of them; the rest is told by its length. */
const LEARNED_DELTAS = 2;

/** What relay does with a frame. */
export type Seen =
  | { readonly kind: "pass" }
  /** Pass, with the model's name (its span in `frame.bytes`) replaced by the public id. */
  | { readonly kind: "patch"; readonly model: Span }
  /** Asked for by us, not by the client. */
  | { readonly kind: "swallow" }
  /** The answer is complete with this frame: it and what follows leave only once the charge is durable. */
  | { readonly kind: "terminal"; readonly model: Span | null; readonly last: boolean }
  /** The upstream's own error event. */
  | { readonly kind: "error"; readonly data: Buffer };

const PASS: Seen = { kind: "pass" };
const SWALLOW: Seen = { kind: "swallow" };

export interface TapOptions {
  /** Public model id: an answer that names another one is patched. */
  readonly model: string;
  /** The usage chunk was asked for by us. */
  readonly usageInjected: boolean;
  /** Chat's `n`. */
  readonly choices: number;
}

export interface StreamTap {
  see(frame: SseFrame): Seen;
  /** What was reported so far. */
  readonly usage: MessagesUsage | null;
  /** The report is that of the whole answer. */
  readonly final: boolean;
  /** Output tokens as estimated from the text that passed. */
  readonly estimatedOutput: number;
  /** Events that could not be read. */
  readonly faults: number;
}

export function streamTap(dialect: Dialect, options: TapOptions): StreamTap {
  if (dialect === "messages") return new MessagesTap(options);
  return dialect === "chat" ? new ChatTap(options) : new ResponsesTap(options);
}

/** What the taps have in common: the counters and the estimate. */
abstract class Tap implements StreamTap {
  usage: MessagesUsage | null = null;
  final = false;
  faults = 0;
  protected readonly options: TapOptions;
  #deltas = 0;
  #deltaBytes = 0;
  #learned = 0;
  /** Bytes of a delta event that are not text: the least seen. */
  #envelope = Infinity;

  constructor(options: TapOptions) {
    this.options = options;
  }

  abstract see(frame: SseFrame): Seen;

  get estimatedOutput(): number {
    if (this.#deltas === 0) return 0;
    const text = this.#deltaBytes - this.#deltas * Math.min(this.#envelope, this.#deltaBytes / this.#deltas);
    return Math.max(1, Math.ceil(text / BYTES_PER_TOKEN));
  }

  /** Counts a delta by its length; the first few are decoded to learn how much of it is envelope. */
  protected delta(frame: SseFrame): void {
    const length = frame.dataEnd - frame.dataStart;
    this.#deltas += 1;
    this.#deltaBytes += length;
    if (this.#learned >= LEARNED_DELTAS) return;
    this.#learned += 1;
    try {
      const text = this.textBytes(JSON.parse(frameData(frame).toString("utf8")));
      this.#envelope = Math.min(this.#envelope, Math.max(0, length - text));
    } catch {
      this.faults += 1;
    }
  }

  /** Bytes of text that a parsed delta holds. */
  protected textBytes(event: unknown): number {
    return longestText(event, 0);
  }

  /** Reads an event's JSON; a fault is counted, and null. */
  protected read<T>(frame: SseFrame, read: (reader: JsonReader, offset: number) => T): T | null {
    const data = frameData(frame);
    // Spans are of use only where the data is the frame's own bytes.
    const offset = frame.dataLines === 1 ? frame.dataStart : NaN;
    try {
      return JsonReader.whole(data, (reader) => read(reader, offset));
    } catch (fault) {
      if (!(fault instanceof JsonFault)) throw fault;
      this.faults += 1;
      return null;
    }
  }

  /** The span to patch when the string ahead is not the public id. */
  protected foreignModel(reader: JsonReader, offset: number): Span | null {
    if (reader.kind() !== "string") return null;
    const start = reader.position;
    const name = reader.string();
    if (name === this.options.model || Number.isNaN(offset)) return null;
    return { start: start + offset, end: reader.position + offset };
  }
}

/** The text of a delta is one of its strings outside ids and types; the sum of those below `delta`, `text`, … */
function longestText(value: unknown, depth: number): number {
  if (typeof value !== "object" || value === null || depth > 4) return 0;
  let sum = 0;
  for (const [key, child] of Object.entries(value)) {
    if (typeof child === "string") {
      if (textKeys.has(key)) sum += Buffer.byteLength(JSON.stringify(child)) - 2;
    } else sum += longestText(child, depth + 1);
  }
  return sum;
}
const textKeys = new Set([
  "text",
  "content",
  "thinking",
  "partial_json",
  "arguments",
  "delta",
  "reasoning_content",
  "reasoning",
  "refusal",
]);

class MessagesTap extends Tap {
  see(frame: SseFrame): Seen {
    if (frame.dataLines === 0) return PASS;
    // Nearly all events of a stream: told by one character, `content_block_(d)elta`.
    if (frame.nameEnd - frame.nameStart === 19 && frame.bytes[frame.nameStart + 14] === 0x64) {
      this.delta(frame);
      return PASS;
    }
    switch (frameName(frame) || this.#type(frame)) {
      case "message_start":
        return this.#start(frame);
      case "message_delta":
        this.#delta(frame);
        return PASS;
      case "message_stop":
        return { kind: "terminal", model: null, last: true };
      case "error":
        return { kind: "error", data: frameData(frame) };
      case "content_block_delta":
        this.delta(frame);
        return PASS;
      default:
        return PASS;
    }
  }

  /** Some upstreams leave the event's name out. */
  #type(frame: SseFrame): string {
    let type = "";
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "type") type = reader.string() ?? "";
      }),
    );
    return type;
  }

  #start(frame: SseFrame): Seen {
    let model: Span | null = null;
    this.read(frame, (reader, offset) =>
      reader.object((key) => {
        if (key !== "message" || reader.kind() !== "object") return;
        reader.object((name) => {
          if (name === "model") model = this.foreignModel(reader, offset);
          else if (name === "usage") this.usage = readMessagesUsage(reader.value(), this.usage);
        });
      }),
    );
    return model === null ? PASS : { kind: "patch", model };
  }

  #delta(frame: SseFrame): void {
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key !== "usage") return;
        const before = this.usage;
        this.usage = readMessagesUsage(reader.value(), before);
        if (this.usage !== null && this.usage !== before) this.final = true;
      }),
    );
  }
}

const FINISH = Buffer.from('"finish_reason"');
const USAGE = Buffer.from('"usage"');
const ERROR = Buffer.from('"error"');
const MODEL = Buffer.from('"model"');
const DONE = Buffer.from("[DONE]");

/** Finds one key in the frames of a buffer; each byte is searched once, however many frames it holds. */
class KeyFinder {
  readonly #key: Buffer;
  #bytes: Buffer | null = null;
  #next = 0;

  constructor(key: Buffer) {
    this.#key = key;
  }

  /**
   * Offset of the value of the key at or behind `from` within the frame; -1: none. Bytes inside of a string never
   * match, because the quotes of the key would stand escaped there.
   */
  valueAt(frame: SseFrame, from: number): number {
    const { bytes } = frame;
    if (this.#bytes !== bytes) {
      this.#bytes = bytes;
      this.#next = 0;
    }
    if (this.#next < from) {
      const found = bytes.indexOf(this.#key, from);
      this.#next = found === -1 ? Infinity : found;
    }
    if (this.#next >= frame.end) return -1;
    let at = this.#next + this.#key.length;
    while (isSpace(bytes[at])) at += 1;
    // A string that only happens to equal the key has no colon.
    if (bytes[at] !== 0x3a) return this.valueAt(frame, this.#next + 1);
    at += 1;
    while (isSpace(bytes[at])) at += 1;
    return at;
  }
}

const isSpace = (byte: number | undefined) => byte === 0x20 || byte === 0x09;
/** `null` begins with it, and no other value that matters here. */
const NULL_START = 0x6e;

class ChatTap extends Tap {
  readonly #finish = new KeyFinder(FINISH);
  readonly #usage = new KeyFinder(USAGE);
  readonly #error = new KeyFinder(ERROR);
  readonly #model = new KeyFinder(MODEL);
  readonly #finished = new Set<number>();
  /** Bytes of the name, with its quotes, that the upstream gives instead of the public id; null: not known yet. */
  #foreign: Buffer | null | undefined;

  see(frame: SseFrame): Seen {
    if (frame.dataLines === 0) return PASS;
    const { bytes, dataStart, dataEnd } = frame;
    if (dataEnd - dataStart === DONE.length && bytes.compare(DONE, 0, DONE.length, dataStart, dataEnd) === 0)
      return { kind: "terminal", model: null, last: true };
    if (this.#error.valueAt(frame, dataStart) !== -1 && this.#isError(frame))
      return { kind: "error", data: frameData(frame) };
    const model = this.#foreignName(frame);
    const finishes = this.#anyFinish(frame);
    const usageAt = this.#usage.valueAt(frame, dataStart);
    const reports = usageAt !== -1 && bytes[usageAt] !== NULL_START;
    if (finishes || reports) {
      const seen = this.#readChunk(frame);
      if (seen !== null) return seen.kind === "terminal" ? { ...seen, model } : seen;
    } else this.delta(frame);
    return model === null ? PASS : { kind: "patch", model };
  }

  #anyFinish(frame: SseFrame): boolean {
    let at = this.#finish.valueAt(frame, frame.dataStart);
    while (at !== -1) {
      if (frame.bytes[at] !== NULL_START) return true;
      at = this.#finish.valueAt(frame, at);
    }
    return false;
  }

  /** An error chunk has no choices; `error` may well be a key of something else. */
  #isError(frame: SseFrame): boolean {
    let error = false;
    let choices = false;
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "error") error = reader.kind() === "object" || reader.kind() === "string";
        else if (key === "choices") choices = reader.kind() === "array" && reader.array(() => {}) > 0;
      }),
    );
    return error && !choices;
  }

  /** A chunk that finishes a choice or reports usage. */
  #readChunk(frame: SseFrame): Seen | null {
    let choices = 0;
    let reported = false;
    let finishes = false;
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "usage") {
          const usage = readChatUsage(reader.value());
          if (usage === null) return;
          this.usage = usage;
          reported = true;
        } else if (key === "choices" && reader.kind() === "array")
          choices = reader.array(() => {
            if (reader.kind() === "object") finishes = this.#readChoice(reader) || finishes;
          });
      }),
    );
    // A report beside choices is a running total: the last one counts (continuous usage).
    if (reported && (choices === 0 || finishes)) this.final = true;
    if (reported && choices === 0) return this.options.usageInjected ? SWALLOW : null;
    if (finishes && this.#finished.size >= this.options.choices)
      return { kind: "terminal", model: null, last: false };
    if (!finishes) this.delta(frame);
    return null;
  }

  #readChoice(reader: JsonReader): boolean {
    let index = 0;
    let finished = false;
    reader.object((key) => {
      if (key === "index") index = reader.number() ?? 0;
      else if (key === "finish_reason") finished = (reader.string() ?? "") !== "";
    });
    if (finished) this.#finished.add(index);
    return finished;
  }

  /** The model's name stands in every chunk: what to look for is learned from the first. */
  #foreignName(frame: SseFrame): Span | null {
    if (this.#foreign === undefined) this.#foreign = this.#learnName(frame);
    const foreign = this.#foreign;
    if (foreign === null || foreign === undefined || frame.dataLines !== 1) return null;
    const start = this.#model.valueAt(frame, frame.dataStart);
    const end = start + foreign.length;
    if (start === -1 || end > frame.dataEnd) return null;
    return frame.bytes.compare(foreign, 0, foreign.length, start, end) === 0 ? { start, end } : null;
  }

  #learnName(frame: SseFrame): Buffer | null | undefined {
    let span: Span | null = null;
    let named = false;
    this.read(frame, (reader, offset) =>
      reader.object((key) => {
        if (key !== "model") return;
        named = true;
        span = this.foreignModel(reader, offset);
      }),
    );
    const found = span as Span | null;
    if (found === null) return named ? null : undefined;
    return Buffer.from(frame.bytes.subarray(found.start, found.end));
  }
}

class ResponsesTap extends Tap {
  see(frame: SseFrame): Seen {
    if (frame.dataLines === 0) return PASS;
    const { bytes, nameEnd, nameStart } = frame;
    // `….delta`: nearly all events of a stream.
    if (nameEnd - nameStart > 6 && bytes[nameEnd - 1] === 0x61 && bytes[nameEnd - 5] === 0x64) {
      this.delta(frame);
      return PASS;
    }
    const name = frameName(frame) || this.#type(frame);
    switch (name) {
      case "response.created":
      case "response.queued":
      case "response.in_progress": {
        const model = this.#response(frame);
        return model === null ? PASS : { kind: "patch", model };
      }
      case "response.completed":
      case "response.incomplete":
        return { kind: "terminal", model: this.#response(frame), last: true };
      case "response.failed":
        this.#response(frame);
        return { kind: "error", data: this.#failure(frame) };
      case "error":
        return { kind: "error", data: frameData(frame) };
      default:
        if (name.endsWith(".delta")) this.delta(frame);
        return PASS;
    }
  }

  #type(frame: SseFrame): string {
    let type = "";
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "type") type = reader.string() ?? "";
      }),
    );
    return type;
  }

  #response(frame: SseFrame): Span | null {
    let model: Span | null = null;
    this.read(frame, (reader, offset) =>
      reader.object((key) => {
        if (key !== "response" || reader.kind() !== "object") return;
        reader.object((name) => {
          if (name === "model") model = this.foreignModel(reader, offset);
          else if (name === "usage") {
            const usage = readResponsesUsage(reader.value());
            if (usage === null) return;
            this.usage = usage;
            this.final = true;
          }
        });
      }),
    );
    return model;
  }

  /** The error inside of a failed response, as a body of its own. */
  #failure(frame: SseFrame): Buffer {
    let error: unknown = {};
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key !== "response" || reader.kind() !== "object") return;
        reader.object((name) => {
          if (name === "error") error = reader.value();
        });
      }),
    );
    return Buffer.from(JSON.stringify({ error }));
  }
}

/** What a whole answer says of itself. */
export interface WholeLook {
  readonly usage: MessagesUsage | null;
  /** The mandatory parts of an answer are there. */
  readonly complete: boolean;
  /** An error object stands in their place. */
  readonly error: boolean;
  /** Spans of the top-level model name, when it is not the public id. */
  readonly model: Span | null;
  /** Chat: offsets just behind the opening brace of each message without annotations, and whether it is empty. */
  readonly bareMessages: readonly { readonly at: number; readonly empty: boolean }[];
}

/** @throws JsonFault when the answer is not JSON at all. */
export function lookAtWhole(dialect: Dialect, body: Buffer, model: string): WholeLook {
  return JsonReader.whole(body, (reader) => {
    if (reader.kind() !== "object") throw new JsonFault("syntax", "Not an object", reader.position);
    let usage: MessagesUsage | null = null;
    let parts = 0;
    let error = false;
    let span: Span | null = null;
    const bareMessages: { at: number; empty: boolean }[] = [];
    reader.object((key) => {
      const kind = reader.kind();
      if (key === "model" && kind === "string") {
        const start = reader.position;
        if (reader.string() !== model) span = { start, end: reader.position };
      } else if (key === "usage") usage = readUsage(dialect, reader.value());
      else if (key === "error") error = kind === "object" || kind === "string";
      else if (key === partsField[dialect] && kind === "array") {
        if (dialect !== "chat") parts = 1;
        else
          reader.array(() => {
            if (reader.kind() !== "object") return;
            reader.object((name) => {
              if (name !== "message" || reader.kind() !== "object") return;
              parts += 1;
              const bare = bareMessage(reader);
              if (bare !== null) bareMessages.push(bare);
            });
          });
      }
    });
    return { usage, complete: parts > 0, error, model: span, bareMessages };
  });
}

const partsField = { messages: "content", chat: "choices", responses: "output" } as const;

function bareMessage(reader: JsonReader): { at: number; empty: boolean } | null {
  const at = reader.position + 1;
  const { members } = reader.members();
  if (members.some(({ key }) => key === "annotations")) return null;
  return { at, empty: members.length === 0 };
}

function readUsage(dialect: Dialect, raw: unknown): MessagesUsage | null {
  if (dialect === "messages") return readMessagesUsage(raw, null);
  return dialect === "chat" ? readChatUsage(raw) : readResponsesUsage(raw);
}

/** A report of nothing at all is none: some upstreams fill in zeros where they did not count. */
export const isReport = (usage: MessagesUsage | null): usage is MessagesUsage =>
  usage !== null &&
  usage.input_tokens +
    usage.output_tokens +
    (usage.cache_read_input_tokens ?? 0) +
    (usage.cache_creation_input_tokens ?? 0) >
    0;

/** Usage as it is billed. A cache write without the 5m/1h split counts as 5m (rule 5.10). */
export function tokensOf(usage: MessagesUsage): TokenUsage {
  const written = usage.cache_creation_input_tokens ?? 0;
  const oneHour = usage.cache_creation?.ephemeral_1h_input_tokens ?? 0;
  const fiveMinutes = usage.cache_creation?.ephemeral_5m_input_tokens ?? 0;
  return {
    input: usage.input_tokens,
    cacheRead: usage.cache_read_input_tokens ?? 0,
    cacheWrite5m: Math.max(fiveMinutes, written - oneHour),
    cacheWrite1h: oneHour,
    output: usage.output_tokens,
    reasoning: Math.min(usage.output_tokens, usage.output_tokens_details?.thinking_tokens ?? 0),
  };
}
