import {
  audioLengthIn,
  callsIn,
  errorHolder,
  imagesIn,
  isChatFailure,
  weighMessage,
} from "../../dialects/chat/read-response.ts";
import { arrayOf, objectOf, parseJson } from "../../dialects/fields.ts";
import type { JsonObject, MessagesUsage } from "../../dialects/messages/types.ts";
import { type CountedOutput, writtenWith } from "../../dialects/output-estimate.ts";
import { readChatUsage } from "../../dialects/usage.ts";
import { COLON } from "../../lib/json-bytes.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";
import { frameData, frameName, type SseFrame } from "../../lib/sse.ts";
import { DeltaTemplate } from "./delta-template.ts";
import { weigherOf } from "./lean-frame.ts";
import { PASS, passWith, SWALLOW, Tap, type FrameAction } from "./usage-tap.ts";

const FINISH = Buffer.from('"finish_reason"');
const USAGE = Buffer.from('"usage"');
const ERROR = Buffer.from('"error"');
const DONE = Buffer.from("[DONE]");
const DONE_EVENT = `data: ${DONE.toString()}\n\n`;

/**
 * Finds the value of a key at or behind `from` within the frame; -1: none. Bytes inside of a string never match,
 * because the quotes of the key would be escaped there.
 */
function valueAt(frame: SseFrame, key: Buffer, from: number): number {
  const bytes = frame.bytes.subarray(0, frame.end);
  for (let found = bytes.indexOf(key, from); found !== -1;) {
    const colon = afterSpace(bytes, found + key.length);
    if (bytes[colon] === COLON) return afterSpace(bytes, colon + 1);
    // A string that only happens to equal the key has no colon.
    found = bytes.indexOf(key, colon);
  }
  return -1;
}

function afterSpace(bytes: Buffer, from: number): number {
  let at = from;
  while (isSpace(bytes[at])) at += 1;
  return at;
}

const isSpace = (byte: number | undefined) => byte === 0x20 || byte === 0x09;
/** First byte of `null`, and of no other JSON value. */
const NULL_START = 0x6e;

/** A failure of which a provider says nothing but its reason. */
const FAILURE: FrameAction = { kind: "error", data: Buffer.from("{}") };

export class ChatTap extends Tap {
  readonly #finished = new Set<number>();
  /** Choices that call tools. */
  readonly #calling = new Set<number>();
  /** Fields of the first chunk. */
  #head: { id: string | undefined; created: number | undefined } | null = null;
  #done = false;
  #template: DeltaTemplate | null = null;
  #audioLength = 0;
  #images = 0;
  /** Whether a chunk gave a failure as its reason. The error waits for the one behind it, which may report the usage. */
  #failed = false;

  override get written(): CountedOutput {
    return writtenWith(this.weight, this.#audioLength, this.#images);
  }

  override get awaitsReport(): boolean {
    return this.#failed;
  }

  override get missingEnd(): string {
    return this.#done ? "" : DONE_EVENT;
  }

  override forgetShapes(): void {
    this.#template = null;
  }

  inspect(frame: SseFrame): FrameAction {
    if (frame.dataLines === 0) return PASS;
    if (this.#failed) return this.#lookBehind(frame);
    const template = this.#template;
    const weight = template === null ? -1 : template.match(frame);
    if (template === null || weight < 0) return this.#look(frame);
    this.weight += weight;
    return passWith(template.models);
  }

  protected weigh(chunk: JsonObject, frame: SseFrame): number {
    const weighText = weigherOf(frame);
    return (arrayOf(chunk["choices"]) ?? []).reduce<number>((sum, value) => {
      const choice = objectOf(value);
      // A few servers call the delta `message`.
      const delta = objectOf(choice?.["delta"]) ?? objectOf(choice?.["message"]) ?? {};
      this.#audioLength += audioLengthIn(delta);
      this.#images += imagesIn(delta);
      if (callsIn(delta).length > 0) this.#calling.add(Number(choice?.["index"] ?? 0));
      return sum + weighMessage(delta, weighText);
    }, 0);
  }

  /** Ends the answer with its failure, once the chunk behind that is read. */
  #lookBehind(frame: SseFrame): FrameAction {
    const seen = this.#look(frame);
    return seen.kind === "error" ? seen : FAILURE;
  }

  /** Inspects a chunk that the template does not match. */
  #look(frame: SseFrame): FrameAction {
    const { bytes, dataStart, dataEnd } = frame;
    if (dataEnd - dataStart === DONE.length && bytes.compare(DONE, 0, DONE.length, dataStart, dataEnd) === 0)
      return this.#end(frame);
    if (frameName(frame) === "error") return { kind: "error", data: frameData(frame) };
    const error = valueAt(frame, ERROR, dataStart) === -1 ? null : this.#errorIn(frame);
    if (error !== null) return { kind: "error", data: error };
    const isFirst = this.#head === null;
    const models = this.#readHead(frame);
    const usageAt = valueAt(frame, USAGE, dataStart);
    if (this.#anyFinish(frame) || (usageAt !== -1 && bytes[usageAt] !== NULL_START)) {
      const inspected = this.#readChunk(frame, isFirst);
      if (inspected !== null) return inspected.kind === "terminal" ? { ...inspected, models } : inspected;
    } else {
      const media = this.#audioLength + this.#images;
      const weight = this.weighRead(frame);
      this.weight += weight;
      // A template weighs text alone: each frame with audio or images is read.
      const isText = this.#audioLength + this.#images === media;
      if (isText && frame.dataLines === 1 && this.learns(frame))
        this.#template = DeltaTemplate.of(frame, models, weight);
    }
    return passWith(models);
  }

  /** Handles `[DONE]`. Unfinished choices get a `finish_reason` first: official SDKs throw without one (rule 2.13). */
  #end(frame: SseFrame): FrameAction {
    this.#done = true;
    const open = Array.from({ length: this.options.choices }, (_, index) => index).filter(
      (index) => !this.#finished.has(index),
    );
    if (open.length === 0 || this.#head === null) return { kind: "terminal", models: [], last: true };
    const finish = {
      ...this.#head,
      object: "chat.completion.chunk",
      model: this.options.model,
      choices: open.map((index) => ({
        index,
        delta: {},
        finish_reason: this.#calling.has(index) ? "tool_calls" : "stop",
      })),
    };
    const bytes = Buffer.concat([
      Buffer.from(`data: ${JSON.stringify(finish)}\n\n`),
      frame.bytes.subarray(frame.start, frame.end),
    ]);
    return { kind: "terminal", models: [], last: true, bytes };
  }

  #anyFinish(frame: SseFrame): boolean {
    let at = valueAt(frame, FINISH, frame.dataStart);
    while (at !== -1) {
      if (frame.bytes[at] !== NULL_START) return true;
      at = valueAt(frame, FINISH, at);
    }
    return false;
  }

  /** Returns what of a chunk holds an error; null: nothing. `error` may be a nested key. */
  #errorIn(frame: SseFrame): Buffer | null {
    const data = frameData(frame);
    const chunk = objectOf(parseJson(data.toString("utf8")));
    const failed = chunk === null ? null : errorHolder(chunk);
    if (failed === null) return null;
    return failed === chunk ? data : Buffer.from(JSON.stringify(failed));
  }

  /** Reads a chunk that finishes a choice or reports usage. */
  #readChunk(frame: SseFrame, isFirst: boolean): FrameAction | null {
    let choices = 0;
    let usage: MessagesUsage | null = null;
    const finished = new Map<number, string>();
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "usage") usage = readChatUsage(reader.value());
        else if (key === "choices") {
          finished.clear();
          choices = reader.kind() === "array" ? reader.array(() => this.#readChoice(reader, finished)) : 0;
        }
      }),
    );
    for (const index of finished.keys()) this.#finished.add(index);
    this.usage = usage ?? this.usage;
    const reported = usage !== null;
    const finishes = finished.size > 0;
    // Some providers put the last piece, or the whole text, in the chunk with the reason.
    if (choices > 0)
      this.weight += this.weigh(objectOf(parseJson(frameData(frame).toString("utf8"))) ?? {}, frame);
    // Usage in a chunk with choices is a running total (continuous usage): the last one counts.
    if (reported && (choices === 0 || finishes)) this.final = true;
    if ([...finished.values()].some(isChatFailure)) {
      // Nothing is sent before the first, so that it can still be an HTTP error.
      if (reported || isFirst) return FAILURE;
      this.#failed = true;
      return SWALLOW;
    }
    if (reported && choices === 0) return this.options.usageInjected ? SWALLOW : null;
    const isEnd = finishes && this.#finished.size >= this.options.choices;
    return isEnd ? { kind: "terminal", models: [], last: false } : null;
  }

  /** Adds the choice ahead to those that are finished, with the reason. */
  #readChoice(reader: JsonReader, finished: Map<number, string>): void {
    if (reader.kind() !== "object") return;
    let index = 0;
    let reason = "";
    reader.object((key) => {
      if (key === "index") index = reader.number() ?? 0;
      else if (key === "finish_reason") reason = reader.string() ?? "";
    });
    if (reason !== "") finished.set(index, reason);
  }

  /** Reads the fields that every chunk has: the tier and the model's name. @returns the names of other models. */
  #readHead(frame: SseFrame): Span[] {
    const models: Span[] = [];
    let tier: string | undefined;
    const head: { id: string | undefined; created: number | undefined } = {
      id: undefined,
      created: undefined,
    };
    this.read(frame, (reader, offset) =>
      reader.object((key) => {
        if (key === "model") this.addForeign(reader, offset, models);
        else if (key === "id") head.id = reader.string();
        else if (key === "created") head.created = reader.number();
        else if (key === "service_tier") tier = reader.string();
      }),
    );
    this.tier = tier ?? this.tier;
    this.#head ??= head;
    return models;
  }
}
