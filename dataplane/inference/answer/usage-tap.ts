/**
 * Reads what an answer says of itself while its bytes pass: usage, the model's name, its end and its errors. One
 * tap for each dialect. A tap never throws and never breaks a stream (design.md §4.2): what it cannot read is
 * passed on, and billed from an estimate.
 */
import type { KeepItem } from "../../dialects/codecs.ts";
import { objectOf, parseJson } from "../../dialects/fields.ts";
import type { JsonObject, MessagesUsage } from "../../dialects/messages/types.ts";
import { type CountedOutput, writtenText } from "../../dialects/output-estimate.ts";
import { isErrorAhead } from "../../dialects/upstream-error.ts";
import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import type { Edit } from "../../lib/json-splice.ts";
import { frameData, frameName, type SseFrame } from "../../lib/sse.ts";
import { type AnswerSeal, editedFrame } from "./seal-answer.ts";
import { TextPlace } from "./text-place.ts";

/** A stream whose deltas keep changing their shape is read one by one after so many changes. */
const MAX_LESSONS = 256;
/** No delta of a model's is as long; what was learned of a longer event would hold a copy of it, and take as long as reading it. */
const MOST_LEARNED_BYTES = 16 * 1024;

/** What relay does with a frame. */
export type FrameAction =
  | { readonly kind: "pass" }
  /** Pass, with the model's name replaced by the public id: its span in `frame.bytes`, were the data one line. */
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
export const SWALLOW: FrameAction = { kind: "swallow" };

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
  inspect(frame: SseFrame): FrameAction;
  /** What was reported so far. */
  readonly usage: MessagesUsage | null;
  /** The tier that was named last beside it (Chat, Responses). */
  readonly tier: string | null;
  /** The report is that of the whole answer. */
  readonly final: boolean;
  /** Responses: it failed by its own account, before anything was reported or written. */
  readonly isFree: boolean;
  /** What the model wrote so far. */
  readonly written: CountedOutput;
  /** Events that could not be read. */
  readonly faults: number;
  /** Responses: the `sequence_number` of what would come next (rule 2.13). Meant for a stream's end. */
  readonly nextNumber: number;
  /** What a complete answer still lacks for its dialect. Meant for a stream's end. */
  readonly missingEnd: string;
}

/** What the taps have in common: the counters, and the weight of what was written. */
export abstract class Tap implements StreamTap {
  usage: MessagesUsage | null = null;
  tier: string | null = null;
  final = false;
  faults = 0;
  protected readonly options: TapOptions;
  /** Of the text that the model wrote so far (output-estimate.ts). */
  protected weight = 0;
  #place: TextPlace | null = null;
  #lessons = 0;

  constructor(options: TapOptions) {
    this.options = options;
  }

  abstract inspect(frame: SseFrame): FrameAction;

  get written(): CountedOutput {
    return writtenText(this.weight);
  }

  get isFree(): boolean {
    return false;
  }

  get nextNumber(): number {
    return 0;
  }

  get missingEnd(): string {
    return "";
  }

  /** What the model wrote in a delta event, weighed. */
  protected abstract weigh(event: JsonObject, frame: SseFrame): number;

  /** Weighs a delta: by its place where the text of the one before stood, else by reading it. @returns its weight. */
  protected delta(frame: SseFrame): number {
    let weight = this.#place === null ? -1 : this.#place.weigh(frame);
    if (weight < 0) {
      weight = this.weighRead(frame);
      if (frame.dataLines === 1 && weight > 0 && this.learns(frame))
        this.#place = TextPlace.of(frame, weight);
    }
    this.weight += weight;
    return weight;
  }

  /** The weight of a delta that is read; what cannot be read weighs nothing, and is counted. */
  protected weighRead(frame: SseFrame): number {
    const event = objectOf(parseJson(frameData(frame).toString("utf8")));
    if (event !== null) return this.weigh(event, frame);
    this.faults += 1;
    return 0;
  }

  /** Whether what was read may be learned from: that costs time, and a stream may change its shape for ever. */
  protected learns({ start, end }: SseFrame): boolean {
    if (end - start > MOST_LEARNED_BYTES) return false;
    this.#lessons += 1;
    return this.#lessons <= MAX_LESSONS;
  }

  /** Reads an event's JSON, in which a text may hold bytes that are no UTF-8; a fault is counted, and null. */
  protected read<T>(frame: SseFrame, read: (reader: JsonReader, offset: number) => T): T | null {
    const reader = new JsonReader(frameData(frame), "told");
    try {
      const result = read(reader, frame.dataStart);
      reader.end();
      return result;
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

  /** What an event is. Some upstreams leave its name out: its type tells, or that it holds an error. */
  protected kindOf(frame: SseFrame): string {
    const name = frameName(frame);
    if (name !== "") return name;
    let type = "";
    let isError = false;
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "type") type = reader.string() ?? "";
        else if (key === "error") isError = isErrorAhead(reader);
      }),
    );
    return type === "" && isError ? "error" : type;
  }

  /** The span to patch when the string ahead is not the public id. */
  protected foreignModel(reader: JsonReader, offset: number): Span | null {
    if (reader.kind() !== "string") return null;
    const start = reader.position;
    const name = reader.string();
    if (name === this.options.model) return null;
    return { start: start + offset, end: reader.position + offset };
  }
}
