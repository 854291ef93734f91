import type { Dialect } from "../../dialects/dialect.ts";
import { arrayOf, objectOf, parseJson, stringOf, textOf } from "../../dialects/fields.ts";
import type { JsonObject, MessagesUsage } from "../../dialects/messages/types.ts";
import { weightOfArguments } from "../../dialects/output-estimate.ts";
import { weighItem } from "../../dialects/responses/read-response.ts";
import { isErrorAhead } from "../../dialects/upstream-error.ts";
import { readMessagesUsage, readResponsesUsage } from "../../dialects/usage.ts";
import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import type { Edit } from "../../lib/json-splice.ts";
import { frameData, frameName, type SseFrame } from "../../lib/sse.ts";
import { ChatTap } from "./chat-tap.ts";
import { keepItemAhead } from "../request/item-references.ts";
import { BlobDeltas } from "./blob-deltas.ts";
import { LeanFrame, weigherOf } from "./lean-frame.ts";
import { mayHoldEncrypted, sealBlockAhead, sealBlocksAhead, sealEventAhead } from "./seal-answer.ts";
import { PASS, passWith, Tap, type FrameAction, type StreamTap, type TapOptions } from "./usage-tap.ts";

/** Makes what reads the usage of a relayed stream and finds its end, in the dialect of client and upstream. */
export function streamTap(dialect: Dialect, options: TapOptions): StreamTap {
  switch (dialect) {
    case "messages":
      return new MessagesTap(options);
    case "chat":
      return new ChatTap(options);
    case "responses":
      return new ResponsesTap(options);
  }
}

const messagesEvents: ReadonlySet<string> = new Set([
  "message_start",
  "message_delta",
  "message_stop",
  "content_block_start",
  "content_block_delta",
  "content_block_stop",
  "ping",
  "error",
]);

class MessagesTap extends Tap {
  /** Seals the deltas of the open block; null: they hold nothing to seal. */
  #blobs: BlobDeltas | null = null;
  /** Weight of the arguments in the open block's start event; it counts if no delta with text follows. */
  #startWeight = 0;

  override get heldBytes(): number {
    return this.#blobs?.heldBytes ?? 0;
  }

  protected override knows(name: string): boolean {
    return messagesEvents.has(name);
  }

  inspect(frame: SseFrame): FrameAction {
    if (frame.dataLines === 0) return PASS;
    // Nearly all events of a stream. One character identifies them: `content_block_(d)elta`.
    if (frame.nameEnd - frame.nameStart === 19 && frame.bytes[frame.nameStart + 14] === 0x64) {
      return this.#blockDelta(frame);
    }
    const blobs = this.#blobs;
    const inspected = this.#see(frame);
    return blobs === null ? inspected : blobs.behind(frame, inspected);
  }

  #see(frame: SseFrame): FrameAction {
    switch (this.kindOf(frame)) {
      case "message_start":
        return this.#start(frame);
      case "message_delta":
        this.#delta(frame);
        return PASS;
      case "message_stop":
        return { kind: "terminal", models: [], last: true };
      case "error":
        return { kind: "error", data: frameData(frame) };
      case "content_block_delta":
        return this.#blockDelta(frame);
      case "content_block_start":
        return this.#blockStart(frame);
      case "content_block_stop":
        this.weight += this.#startWeight;
        this.#startWeight = 0;
        return PASS;
      default:
        return PASS;
    }
  }

  #blockDelta(frame: SseFrame): FrameAction {
    if (this.delta(frame) > 0) this.#startWeight = 0;
    return this.#blobs === null ? PASS : this.#blobs.delta(frame);
  }

  protected weigh({ delta }: JsonObject, frame: SseFrame): number {
    const weighText = weigherOf(frame);
    const { type, text, thinking, partial_json, content } = objectOf(delta) ?? {};
    if (type === "text_delta") return weighText(stringOf(text) ?? "");
    if (type === "thinking_delta") return weighText(stringOf(thinking) ?? "");
    if (type === "compaction_delta") return weighText(stringOf(content) ?? "");
    return type === "input_json_delta" ? weighText(stringOf(partial_json) ?? "") : 0;
  }

  /** Weighs a start event: some servers put a block's content there. */
  #weighStart(frame: SseFrame): void {
    const event = objectOf(parseJson(frameData(frame).toString("utf8")));
    const block = objectOf(event?.["content_block"]) ?? {};
    const { type, text, thinking, input, content } = block;
    const weighText = weigherOf(frame);
    this.#startWeight = type === "tool_use" ? weightOfArguments(input ?? {}, weighText) : 0;
    if (type === "text") this.weight += weighText(stringOf(text) ?? "");
    if (type === "thinking") this.weight += weighText(stringOf(thinking) ?? "");
    if (type === "compaction") this.weight += weighText(stringOf(content) ?? "");
  }

  /** Seals a start event: a redacted block comes whole; a thinking block's signature usually comes at its end. */
  #blockStart(frame: SseFrame): FrameAction {
    this.#weighStart(frame);
    const { seal } = this.options;
    if (!seal) return PASS;
    const edits: Edit[] = [];
    let type: string | undefined;
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "content_block") type = sealBlockAhead(reader, seal, edits);
      }),
    );
    this.#blobs = type === "thinking" || type === "compaction" ? new BlobDeltas(seal) : null;
    return edits.length === 0 ? PASS : { kind: "replace", bytes: this.edited(frame, edits, []) };
  }

  #start(frame: SseFrame): FrameAction {
    const { seal } = this.options;
    const edits: Edit[] = [];
    const models: Span[] = [];
    let usage: unknown;
    this.read(frame, (reader, offset) =>
      reader.object((key) => {
        if (key !== "message") return;
        usage = undefined;
        if (reader.kind() !== "object") return;
        reader.object((name) => {
          if (name === "model") this.addForeign(reader, offset, models);
          else if (name === "usage") usage = reader.value();
          else if (name === "content" && seal) sealBlocksAhead(reader, seal, edits);
        });
      }),
    );
    this.usage = readMessagesUsage(usage, this.usage);
    return edits.length > 0
      ? { kind: "replace", bytes: this.edited(frame, edits, models) }
      : passWith(models);
  }

  #delta(frame: SseFrame): void {
    let usage: unknown;
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "usage") usage = reader.value();
      }),
    );
    this.usage = readMessagesUsage(usage, this.usage);
    if (typeof objectOf(usage)?.["output_tokens"] === "number") this.final = true;
  }
}

/** The events of a Responses stream that carry text of the model, each with the type of its item. */
const itemOfDelta: ReadonlyMap<string, string> = new Map([
  ["response.output_text.delta", "message"],
  ["response.refusal.delta", "message"],
  ["response.function_call_arguments.delta", "function_call"],
  ["response.reasoning_summary_text.delta", "reasoning"],
  ["response.reasoning_text.delta", "reasoning"],
]);

class ResponsesTap extends Tap {
  /** Types of items whose text came in deltas; the text of others is weighed from their last event. */
  readonly #streamed = new Set<string>();
  #hasItemEnds = false;
  #failed = false;
  /** Whether the last `response` that was read has an error, whatever else it holds. */
  #holdsError = false;
  /** Whether it reports usage. */
  #hasReport = false;
  /** Name of the reasoning events that count in the current item, the first that came: a summary repeats the raw reasoning. */
  #reasoningForm = "";
  /** The last `sequence_number` that was read, plus one. */
  #number = 0;
  /** Deltas since then. Their numbers are not read: nearly all events are deltas, and few streams break off. */
  #unread = 0;
  /** The data of the last delta. */
  #bytes: Buffer = Buffer.alloc(0);
  #from = 0;
  #to = 0;

  override get isFree(): boolean {
    return this.#failed && this.usage === null && this.weight === 0;
  }

  override get nextNumber(): number {
    if (this.#unread === 0) return this.#number;
    const number = numberOf(this.#bytes.subarray(this.#from, this.#to));
    // The last delta has no number, or is broken: only those before it are counted.
    return number === null ? this.#number + this.#unread - 1 : number + 1;
  }

  override get heldBytes(): number {
    return this.#bytes.length;
  }

  protected override knows(name: string): boolean {
    return name.startsWith("response.") || name === "error";
  }

  inspect(frame: SseFrame): FrameAction {
    if (frame.dataLines === 0) return PASS;
    const { bytes, nameEnd, nameStart } = frame;
    // `….delta`: nearly all events of a stream.
    if (nameEnd - nameStart > 6 && bytes[nameEnd - 1] === 0x61 && bytes[nameEnd - 5] === 0x64) {
      this.#delta(frame);
      return PASS;
    }
    return this.#sealed(frame, this.#see(frame));
  }

  #sealed(frame: SseFrame, inspected: FrameAction): FrameAction {
    const { seal } = this.options;
    if (!seal || inspected.kind === "error" || inspected.kind === "replace" || !mayHoldEncrypted(frame))
      return inspected;
    const edits: Edit[] = [];
    this.read(frame, (reader) => sealEventAhead(reader, seal, edits));
    if (edits.length === 0) return inspected;
    const models = inspected.kind === "patch" || inspected.kind === "terminal" ? inspected.models : [];
    const replaced = this.edited(frame, edits, models);
    return inspected.kind === "terminal"
      ? { ...inspected, bytes: replaced }
      : { kind: "replace", bytes: replaced };
  }

  #see(frame: SseFrame): FrameAction {
    const name = this.kindOf(frame);
    switch (name) {
      case "response.created":
      case "response.queued":
      case "response.in_progress": {
        this.#readNumber(frame);
        return passWith(this.#response(frame));
      }
      case "response.completed":
      case "response.incomplete":
        return this.#end(frame);
      case "response.output_item.done":
        this.#readNumber(frame);
        this.#itemDone(frame);
        this.#keepItem(frame);
        return PASS;
      case "response.failed":
        this.#failed = true;
        this.#lastResponse(frame);
        return { kind: "error", data: this.#failure(frame) };
      case "error":
        return { kind: "error", data: frameData(frame) };
      default:
        if (name.endsWith(".delta")) this.#delta(frame);
        else this.#readNumber(frame);
        return PASS;
    }
  }

  protected weigh(event: JsonObject, frame: SseFrame): number {
    const name = textOf(event["type"]) ?? frameName(frame);
    const item = itemOfDelta.get(name);
    if (item === undefined) return 0;
    this.#streamed.add(item);
    if (item === "reasoning") {
      if (this.#reasoningForm === "") this.#reasoningForm = name;
      if (this.#reasoningForm !== name) return 0;
    }
    return weigherOf(frame)(stringOf(event["delta"]) ?? "");
  }

  #itemDone(frame: SseFrame): void {
    this.#reasoningForm = "";
    this.#hasItemEnds = true;
    this.#weighItem(objectOf(parseJson(frameData(frame).toString("utf8")))?.["item"], frame);
  }

  #weighItem(value: unknown, frame: SseFrame): void {
    const item = objectOf(value) ?? {};
    if (!this.#streamed.has(stringOf(item["type"]) ?? "")) this.weight += weighItem(item, weigherOf(frame));
  }

  /** Weighs the output in the last event: some servers send it there alone, and report no usage. */
  #weighEnd(frame: SseFrame): void {
    if (this.final || this.#hasItemEnds) return;
    const event = objectOf(parseJson(frameData(frame).toString("utf8")));
    for (const item of arrayOf(objectOf(event?.["response"])?.["output"]) ?? []) this.#weighItem(item, frame);
  }

  #end(frame: SseFrame): FrameAction {
    const models = this.#lastResponse(frame);
    if (!this.#holdsError) return { kind: "terminal", models, last: true };
    this.#failed = true;
    return { kind: "error", data: this.#failure(frame) };
  }

  #delta(frame: SseFrame): void {
    this.delta(frame);
    this.#unread += 1;
    this.#bytes = frame.bytes;
    this.#from = frame.dataStart;
    this.#to = frame.dataEnd;
  }

  /** Reads an event's number. Events without one (`keepalive`, unknown events, broken JSON) change nothing. */
  #readNumber(frame: SseFrame): void {
    const number = numberOf(frameData(frame));
    if (number === null) return;
    this.#number = number + 1;
    this.#unread = 0;
  }

  /** Reads what an event's response tells of itself. @returns the names of other models. */
  #response(frame: SseFrame): Span[] {
    const models: Span[] = [];
    let told: { error?: boolean; tier?: string | undefined; usage?: MessagesUsage | null } = {};
    this.read(frame, (reader, offset) =>
      reader.object((key) => {
        if (key !== "response") return;
        told = {};
        if (reader.kind() !== "object") return;
        reader.object((name) => {
          if (name === "model") this.addForeign(reader, offset, models);
          else if (name === "error") told.error = isErrorAhead(reader);
          else if (name === "service_tier") told.tier = reader.string();
          else if (name === "usage") told.usage = readResponsesUsage(reader.value());
        });
      }),
    );
    this.#holdsError = told.error === true;
    this.tier = told.tier ?? this.tier;
    this.#hasReport = (told.usage ?? null) !== null;
    this.usage = told.usage ?? this.usage;
    return models;
  }

  /** As `#response`, of the last event: what was reported before it is a running total. */
  #lastResponse(frame: SseFrame): Span[] {
    const models = this.#response(frame);
    this.final = this.#hasReport;
    this.#weighEnd(frame);
    return models;
  }

  #keepItem(frame: SseFrame): void {
    const { keepItem } = this.options;
    if (keepItem === undefined) return;
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key === "item") keepItemAhead(reader, keepItem, this.options.seal ?? null, wholeOf(frame));
      }),
    );
  }

  /** The error inside of a failed response, as a body of its own. */
  #failure(frame: SseFrame): Buffer {
    let error: unknown = {};
    this.read(frame, (reader) =>
      reader.object((key) => {
        if (key !== "response") return;
        error = {};
        if (reader.kind() !== "object") return;
        reader.object((name) => {
          if (name === "error") error = reader.value();
        });
      }),
    );
    return Buffer.from(JSON.stringify({ error }));
  }
}

/** Returns the bytes of a value of an event as they came, by its place in the event's data. */
const wholeOf =
  (frame: SseFrame) =>
  (place: Span): Buffer => {
    if (!(frame instanceof LeanFrame)) return frameData(frame).subarray(place.start, place.end);
    const { start, end } = frame.inWholeData(place);
    return frameData(frame.whole).subarray(start, end);
  };

/** The `sequence_number` of an event; null: it has none. */
function numberOf(data: Buffer): number | null {
  const reader = new JsonReader(data, "told");
  let number: number | undefined;
  try {
    reader.object((key) => {
      if (key === "sequence_number") number = reader.number();
    });
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
  }
  return number !== undefined && Number.isSafeInteger(number) ? number : null;
}
