/**
 * A Messages upstream's stream as the hub speaks it: the same events, made regular (dialects.md §C1, §D5).
 * Indexes count from 0 without a gap, one block is open at a time, blocks start empty, `message_delta` comes once
 * with everything that was reported, pings end here.
 *
 *   nothing ──message_start──> running ──message_stop──> over
 */
import { BLOCK_CHARACTERS, MAX_ANSWER_CHARACTERS } from "../block-order.ts";
import { writeArguments } from "../arguments.ts";
import type { CodecContext, EndCause, SseEvent, StreamReader } from "../codecs.ts";
import { arrayOf, objectOf, parseJson, stringOf, textOf } from "../fields.ts";
import { boundedInput, isWholeInput, toolInput } from "../tool-input.ts";
import { corruptAnswer, cutAnswer, inBandError, kindOfEvent } from "../upstream-error.ts";
import { CallIds } from "../call-ids.ts";
import { writtenText, weightOf } from "../output-estimate.ts";
import { countedUsage, readMessagesUsage } from "../usage.ts";
import { messageEnd, messageStart } from "./events.ts";
import { isMessagesLimit, readBlock, stopDetails, messagesStopReason } from "./read-response.ts";
import type {
  BlockDelta,
  Citation,
  CompactionDelta,
  ContentBlock,
  JsonObject,
  JsonValue,
  MessagesEvent,
  MessagesUsage,
} from "./types.ts";

interface OpenBlock {
  readonly kind: ContentBlock["type"];
  readonly upstreamIndex: number;
  /** The tool that is called. */
  readonly name: string;
  /** Tool calls: the arguments so far. */
  json: string;
  /** Arguments in the block's start; used when no delta comes. */
  readonly startInput: JsonObject | null;
  /** Thinking: the signature so far. It is passed on whole, before the block's end. */
  signature: string;
  /** Whether the upstream has ended it; only the stop reason shows whether the output limit cut it (dialects.md §D3). */
  ended: boolean;
}

export class MessagesStreamReader implements StreamReader {
  readonly #context: CodecContext;
  readonly #ids: CallIds;
  #started = false;
  /** The message's id as the upstream gave it. */
  #id: JsonValue | undefined;
  #over = false;
  #open: OpenBlock | null = null;
  #nextIndex = 0;
  #lastUpstreamIndex = -1;
  #toolUsed = false;
  #characters = 0;
  #weight = 0;
  #reported: MessagesUsage | null = null;
  /** Whether the output was reported as a total; that of `message_start` is only a beginning. */
  #final = false;
  #delta: JsonObject = {};

  constructor(context: CodecContext) {
    this.#context = context;
    this.#ids = new CallIds(context, "toolu");
  }

  get usage(): MessagesUsage {
    return countedUsage(this.#reported, this.#context, () => writtenText(this.#weight), this.#final);
  }

  get keptCharacters(): number {
    return this.#open === null ? 0 : this.#open.json.length + this.#open.signature.length;
  }

  step(event: SseEvent): MessagesEvent[] {
    if (this.#over || event.data === "" || event.data.startsWith("[DONE]")) return [];
    const data = objectOf(parseJson(event.data));
    if (data === null) throw corruptAnswer("an event that is not a JSON object");
    const out: MessagesEvent[] = [];
    this.#event(data, kindOfEvent(data, event.event), out);
    return out;
  }

  end(cause: EndCause): MessagesEvent[] {
    if (this.#over) return [];
    throw cause.kind === "failed" ? cause.error : cutAnswer();
  }

  #event(data: JsonObject, type: string, out: MessagesEvent[]): void {
    switch (type) {
      case "content_block_delta":
        return this.#blockDelta(data, out);
      case "message_start":
        return this.#messageStart(objectOf(data["message"]) ?? {}, out);
      case "content_block_start":
        return this.#blockStart(data, out);
      case "content_block_stop":
        return this.#blockEnd(data, out);
      case "message_delta":
        this.#delta = { ...this.#delta, ...objectOf(data["delta"]) };
        if (typeof objectOf(data["usage"])?.["output_tokens"] === "number") this.#final = true;
        this.#reported = readMessagesUsage(data["usage"], this.#reported);
        return;
      case "message_stop":
        return this.#stop(out);
      case "error":
        throw inBandError(data);
      default:
      // `ping`, and events that the vendor adds later (rule 2.14).
    }
  }

  /** Some servers send `message_start` twice before the first block, or put whole blocks into it. */
  #messageStart(message: JsonObject, out: MessagesEvent[]): void {
    if (!this.#started) this.#start(message, out);
    else if (this.#nextIndex > 0 || this.#open !== null || message["id"] !== this.#id)
      throw corruptAnswer("a second message_start");
    else return;
    this.#delta = {
      stop_reason: message["stop_reason"] ?? null,
      stop_sequence: message["stop_sequence"] ?? null,
    };
    for (const block of arrayOf(message["content"]) ?? []) {
      this.#blockStart({ content_block: block }, out);
      this.#blockStop(out);
    }
  }

  #start(message: JsonObject, out: MessagesEvent[]): void {
    this.#started = true;
    this.#id = message["id"];
    this.#reported = readMessagesUsage(message["usage"], null);
    const id = textOf(message["id"]) ?? this.#context.newId("msg");
    out.push(messageStart(id, this.#context.model, this.usage));
  }

  #blockStart(data: JsonObject, out: MessagesEvent[]): void {
    if (!this.#started) this.#start({}, out);
    if (this.#open !== null) this.#blockStop(out);
    this.#hold(BLOCK_CHARACTERS);
    const block = readBlock(data["content_block"], this.#context, this.#ids);
    const upstreamIndex = typeof data["index"] === "number" ? data["index"] : this.#lastUpstreamIndex + 1;
    this.#lastUpstreamIndex = upstreamIndex;
    const { start, first, startInput } = emptied(block);
    const name = block.type === "tool_use" ? block.name : "";
    this.#open = {
      kind: block.type,
      upstreamIndex,
      name,
      json: "",
      startInput,
      signature: block.type === "thinking" ? block.signature : "",
      ended: false,
    };
    if (block.type === "tool_use") this.#toolUsed = true;
    out.push({ type: "content_block_start", index: this.#nextIndex, content_block: start });
    if (first !== null) this.#push(first, out);
  }

  #blockDelta(data: JsonObject, out: MessagesEvent[]): void {
    const delta = objectOf(data["delta"]);
    // It has no content, whichever block it names: llama.cpp sends it at the end of all of them.
    if (delta?.["type"] === "signature_delta" && textOf(delta["signature"]) === null) return;
    const open = this.#open;
    if (delta === null || open === null || open.ended || !isOf(data, open))
      throw corruptAnswer("a delta of a block that is not open");
    switch (delta["type"]) {
      case "text_delta":
        return this.#push({ type: "text_delta", text: stringOf(delta["text"]) ?? "" }, out);
      case "input_json_delta": {
        const json = stringOf(delta["partial_json"]) ?? "";
        open.json += json;
        return this.#push({ type: "input_json_delta", partial_json: json }, out);
      }
      case "thinking_delta":
        return this.#push({ type: "thinking_delta", thinking: stringOf(delta["thinking"]) ?? "" }, out);
      case "signature_delta":
        // It comes whole as a rule; one in pieces is sealed, and sent back, as one.
        open.signature += stringOf(delta["signature"]) ?? "";
        if (open.signature.length > MAX_ANSWER_CHARACTERS) throw corruptAnswer("the answer has no end");
        return;
      case "citations_delta":
        return this.#push(
          {
            type: "citations_delta",
            citation: boundedInput(objectOf(delta["citation"]) ?? {}) as unknown as Citation,
          },
          out,
        );
      case "compaction_delta":
        return this.#push(boundedInput(delta) as CompactionDelta, out);
      default:
    }
  }

  #push(delta: BlockDelta, out: MessagesEvent[]): void {
    if (delta.type === "text_delta") this.#write(delta.text);
    else if (delta.type === "input_json_delta") this.#write(delta.partial_json);
    else if (delta.type === "thinking_delta") this.#write(delta.thinking);
    else if (delta.type === "compaction_delta") this.#write(stringOf(delta.content) ?? "");
    out.push({ type: "content_block_delta", index: this.#nextIndex, delta });
  }

  #write(text: string): void {
    this.#weight += weightOf(text);
    this.#hold(text.length);
  }

  /** That many characters more of the answer are kept. */
  #hold(characters: number): void {
    this.#characters += characters;
    if (this.#characters > MAX_ANSWER_CHARACTERS) throw corruptAnswer("the answer has no end");
  }

  /** A late event, of a block that the next one's start has ended, changes nothing. */
  #blockEnd(data: JsonObject, out: MessagesEvent[]): void {
    const open = this.#open;
    if (open !== null && !isOf(data, open)) return;
    // Nothing more came since it was ended: arguments that may be long are judged once.
    if (open?.ended === true) return;
    if (open?.kind === "tool_use" && open.json.trim() !== "" && !isWholeInput(open.json)) open.ended = true;
    else this.#blockStop(out);
  }

  /** @param isCut the output limit ended the answer with this block. */
  #blockStop(out: MessagesEvent[], isCut = false): void {
    const open = this.#open;
    if (open === null) return;
    if (open.kind === "tool_use") {
      toolInput(open.json, open.name, this.#context.serverTools, isCut);
      if (open.json.trim() === "")
        this.#push({ type: "input_json_delta", partial_json: writeArguments(open.startInput ?? {}) }, out);
    }
    if (open.signature !== "") this.#push({ type: "signature_delta", signature: open.signature }, out);
    this.#open = null;
    out.push({ type: "content_block_stop", index: this.#nextIndex });
    this.#nextIndex += 1;
  }

  #stop(out: MessagesEvent[]): void {
    if (!this.#started) throw cutAnswer();
    this.#blockStop(out, isMessagesLimit(this.#delta["stop_reason"]));
    this.#over = true;
    const end = {
      stop_reason: messagesStopReason(this.#delta["stop_reason"], this.#toolUsed),
      stop_sequence: stringOf(this.#delta["stop_sequence"]),
      ...stopDetails(this.#delta),
    };
    out.push(...messageEnd(end, this.usage));
  }
}

/** Whether an event is about this block; some name no index. */
const isOf = (data: JsonObject, { upstreamIndex }: OpenBlock): boolean =>
  (data["index"] ?? upstreamIndex) === upstreamIndex;

/** Empties a block for its start event: its content becomes the first delta. */
function emptied(block: ContentBlock): {
  start: ContentBlock;
  first: BlockDelta | null;
  startInput: JsonObject | null;
} {
  switch (block.type) {
    case "text":
      return {
        start: { ...block, text: "" },
        first: block.text === "" ? null : { type: "text_delta", text: block.text },
        startInput: null,
      };
    case "thinking":
      return {
        start: { ...block, thinking: "", signature: "" },
        first: block.thinking === "" ? null : { type: "thinking_delta", thinking: block.thinking },
        startInput: null,
      };
    case "tool_use":
      return { start: { ...block, input: {} }, first: null, startInput: block.input };
    default:
      return { start: block, first: null, startInput: null };
  }
}
