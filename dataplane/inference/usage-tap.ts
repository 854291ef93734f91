/**
 * Reads what an answer says of itself while its bytes pass: usage, the model's name, its end and its errors. One
 * tap for each dialect. A tap never throws and never breaks a stream (design.md §4.2): what it cannot read is
 * passed on, and billed from an estimate.
 */
import type { KeepItem } from "../dialects/codecs.ts";
import type { MessagesUsage } from "../dialects/messages/types.ts";
import { JsonFault, JsonReader, type Span } from "../lib/json-reader.ts";
import type { Edit } from "../lib/json-splice.ts";
import { frameData, type SseFrame } from "../lib/sse.ts";
import { type AnswerSeal, editedFrame } from "./seal-answer.ts";

/** Bytes of text that make a token, where an upstream reports nothing. */
const BYTES_PER_TOKEN = 4;
/** Framing and envelope of a delta are learned from this many of them; the rest is told by its length. */
const LEARNED_DELTAS = 2;

/** What relay does with a frame. */
export type Seen =
  | { readonly kind: "pass" }
  /** Pass, with the model's name (its span in `frame.bytes`) replaced by the public id. */
  | { readonly kind: "patch"; readonly model: Span }
  /** These bytes pass in its place; they end as the frame does. */
  | { readonly kind: "replace"; readonly bytes: Buffer }
  /** Asked for by us, not by the client, or held back until a later frame. */
  | { readonly kind: "swallow" }
  /** The answer is complete with this frame: it and what follows leave only once the charge is durable. */
  | {
      readonly kind: "terminal";
      readonly model: Span | null;
      readonly last: boolean;
      /** What passes in its place, the model's name patched; absent: the frame itself. */
      readonly bytes?: Buffer;
    }
  /** The upstream's own error event. */
  | { readonly kind: "error"; readonly data: Buffer };

export const PASS = { kind: "pass" } as const;
export const SWALLOW: Seen = { kind: "swallow" };

export interface TapOptions {
  /** Public model id: an answer that names another one is patched. */
  readonly model: string;
  /** The usage chunk was asked for by us. */
  readonly usageInjected: boolean;
  /** Chat's `n`. */
  readonly choices: number;
  /** Told the output items of a Responses answer. */
  readonly keepItem?: KeepItem | undefined;
  /** Seals what the upstream hands out to be sent back; null: it passes as it is. */
  readonly seal?: AnswerSeal | null;
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
  /** Responses: the `sequence_number` of what would come next (rule 2.13). Meant for a stream's end. */
  readonly nextNumber: number;
}

/** What the taps have in common: the counters and the estimate. */
export abstract class Tap implements StreamTap {
  usage: MessagesUsage | null = null;
  final = false;
  faults = 0;
  protected readonly options: TapOptions;
  #deltas = 0;
  #deltaBytes = 0;
  /** Bytes of text that were counted exactly. */
  #textBytes = 0;
  #learned = 0;
  /** Bytes of a delta event that are not text: the least seen. */
  #envelope = Infinity;

  constructor(options: TapOptions) {
    this.options = options;
  }

  abstract see(frame: SseFrame): Seen;

  get nextNumber(): number {
    return 0;
  }

  get estimatedOutput(): number {
    if (this.#deltas === 0) return Math.ceil(this.#textBytes / BYTES_PER_TOKEN);
    const envelope = Math.min(this.#envelope, this.#deltaBytes / this.#deltas);
    const text = this.#textBytes + this.#deltaBytes - this.#deltas * envelope;
    return Math.max(1, Math.ceil(text / BYTES_PER_TOKEN));
  }

  /** Counts text whose length is known. */
  protected text(bytes: number): void {
    this.#textBytes += bytes;
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

  /** The frame with these edits of its data, and with the public id in the place of a foreign model's name. */
  protected edited(frame: SseFrame, edits: readonly Edit[], model: Span | null): Buffer {
    if (model === null) return editedFrame(frame, edits);
    const { start, end } = model;
    const text = JSON.stringify(this.options.model);
    const named = { start: start - frame.dataStart, end: end - frame.dataStart, text };
    return editedFrame(frame, [...edits, named]);
  }

  /** What an event says that it is. Some upstreams leave its name out. */
  protected type(frame: SseFrame): string {
    let type = "";
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "type") type = reader.string() ?? "";
      }),
    );
    return type;
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

/** A report of nothing at all is none: some upstreams fill in zeros where they did not count. */
export const isReport = (usage: MessagesUsage | null): usage is MessagesUsage =>
  usage !== null &&
  usage.input_tokens +
    usage.output_tokens +
    (usage.cache_read_input_tokens ?? 0) +
    (usage.cache_creation_input_tokens ?? 0) >
    0;
