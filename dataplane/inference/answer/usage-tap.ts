/**
 * Reads the metadata of an answer while its bytes pass: usage, the model's name, its end and its errors. One
 * tap for each dialect. Of a member that an event names twice the last counts. A tap never throws and never breaks a stream (design.md §4.2): events that it cannot read
 * are passed on, and billed from an estimate.
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

/** Most shapes of deltas learned in one stream; later ones are read one by one. */
const MAX_LESSONS = 256;
/** Longest event whose shape is learned. No delta of a model is as long; the shape would copy the event, and take as long as reading it. */
const MOST_LEARNED_BYTES = 16 * 1024;

/** What relay does with a frame. */
export type FrameAction =
  | { readonly kind: "pass" }
  /** Pass, with the public id in place of other models' names. `models`: their spans in `frame.bytes`, if the data is one line. */
  | { readonly kind: "patch"; readonly models: readonly Span[] }
  /** Pass `bytes` in its place; they end as the frame does. */
  | { readonly kind: "replace"; readonly bytes: Buffer }
  /** Pass nothing: only we asked for it, or it is held back until a later frame. */
  | { readonly kind: "swallow" }
  /** The answer is complete with this frame: it and what follows leave only once the charge is durable. */
  | {
      readonly kind: "terminal";
      /** As in `patch`. */
      readonly models: readonly Span[];
      readonly last: boolean;
      /** Bytes that pass in its place, models' names replaced; absent: the frame itself. */
      readonly bytes?: Buffer;
    }
  /** The upstream's own error event. */
  | { readonly kind: "error"; readonly data: Buffer };

export const PASS = { kind: "pass" } as const;
export const SWALLOW: FrameAction = { kind: "swallow" };

export interface TapOptions {
  /** Public model id: an answer that names another one is patched. */
  readonly model: string;
  /** Whether we asked for the usage chunk. */
  readonly usageInjected: boolean;
  /** Chat's `n`. */
  readonly choices: number;
  /** Called with each output item of a Responses answer. */
  readonly keepItem?: KeepItem | undefined;
  /** Seals the blobs that clients send back later (`seal-answer.ts`); null: they pass unsealed. */
  readonly seal?: AnswerSeal | null;
}

export interface StreamTap {
  inspect(frame: SseFrame): FrameAction;
  /** Forgets the shapes of deltas: the next one is read, as its texts were cut. */
  forgetShapes(): void;
  /** The last usage report. */
  readonly usage: MessagesUsage | null;
  /** The last `service_tier` of the answer (Chat, Responses). */
  readonly tier: string | null;
  /** Whether `usage` is that of the whole answer. */
  readonly final: boolean;
  /** Responses: whether the answer reported its own failure before any usage or text. */
  readonly isFree: boolean;
  /** Chat: whether the answer has failed and only its usage may still come. */
  readonly awaitsReport: boolean;
  /** The model's output so far. */
  readonly written: CountedOutput;
  /** Events that could not be read. */
  readonly faults: number;
  /** Bytes of memory that the events take that it keeps. */
  readonly heldBytes: number;
  /** Responses: the `sequence_number` of the next event (rule 2.13). Meant for a stream's end. */
  readonly nextNumber: number;
  /** The end that a complete answer still lacks (Chat's `[DONE]`). Meant for a stream's end. */
  readonly missingEnd: string;
}

/** The common part of the taps: the counters, and the weight of the model's output. */
export abstract class Tap implements StreamTap {
  usage: MessagesUsage | null = null;
  tier: string | null = null;
  final = false;
  faults = 0;
  protected readonly options: TapOptions;
  /** Weight of the text that the model wrote so far (output-estimate.ts). */
  protected weight = 0;
  #place: TextPlace | null = null;
  #lessons = 0;

  constructor(options: TapOptions) {
    this.options = options;
  }

  abstract inspect(frame: SseFrame): FrameAction;

  forgetShapes(): void {
    this.#place = null;
  }

  get written(): CountedOutput {
    return writtenText(this.weight);
  }

  get isFree(): boolean {
    return false;
  }

  get awaitsReport(): boolean {
    return false;
  }

  get nextNumber(): number {
    return 0;
  }

  get heldBytes(): number {
    return 0;
  }

  get missingEnd(): string {
    return "";
  }

  /** Weighs the model's text in a delta event. */
  protected abstract weigh(event: JsonObject, frame: SseFrame): number;

  /** Weighs a delta: by its place if the text stands where it did in an earlier one, else by reading it. @returns its weight. */
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

  /** Reads and weighs a delta; one that cannot be read weighs nothing, and is counted as a fault. */
  protected weighRead(frame: SseFrame): number {
    const event = objectOf(parseJson(frameData(frame).toString("utf8")));
    if (event !== null) return this.weigh(event, frame);
    this.faults += 1;
    return 0;
  }

  /** Whether the shape of a delta may be learned: that costs time, and a stream may change its shape for ever. */
  protected learns({ start, end }: SseFrame): boolean {
    if (end - start > MOST_LEARNED_BYTES) return false;
    this.#lessons += 1;
    return this.#lessons <= MAX_LESSONS;
  }

  /** Reads an event's JSON, whose texts need not be UTF-8. A fault is counted. @returns null after a fault. */
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

  /** Returns the frame with `edits` made in its data, and the public id in place of other models' names. */
  protected edited(frame: SseFrame, edits: readonly Edit[], models: readonly Span[]): Buffer {
    return editedFrame(frame, [...edits, ...publicNames(frame, models, this.options.model)]);
  }

  /** Whether the dialect has events of this name. */
  protected knows(name: string): boolean {
    return name !== "";
  }

  /**
   * The kind of an event: its name; where that is absent or none of its dialect, its `type`, as clients and conversion read
   * it, or `error` if it has neither and holds one.
   */
  protected kindOf(frame: SseFrame): string {
    const name = frameName(frame);
    if (this.knows(name)) return name;
    let type = "";
    let isError = false;
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "type") type = reader.string() ?? "";
        else if (key === "error") isError = isErrorAhead(reader);
      }),
    );
    if (type !== "") return type;
    return name === "" && isError ? "error" : name;
  }

  /** Adds the place of the string ahead to `models` if it is not the public id. An event may name its model twice. */
  protected addForeign(reader: JsonReader, offset: number, models: Span[]): void {
    if (reader.kind() !== "string") return;
    const start = reader.position;
    if (reader.string() !== this.options.model)
      models.push({ start: start + offset, end: reader.position + offset });
  }
}

/** Passes a frame with other models' names replaced. */
export const passWith = (models: readonly Span[]): FrameAction =>
  models.length === 0 ? PASS : { kind: "patch", models };

/** Returns the edits in a frame's data that put the public id in place of other models' names. */
export function publicNames({ dataStart }: SseFrame, models: readonly Span[], model: string): Edit[] {
  const text = JSON.stringify(model);
  return models.map(({ start, end }) => ({ start: start - dataStart, end: end - dataStart, text }));
}
