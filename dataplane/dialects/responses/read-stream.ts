/**
 * A Responses upstream's stream in Messages form (dialects.md §C3, §D5; lenient as rule 2.14 says).
 *
 *   nothing ──first event──> running ──response.completed | .incomplete──> over
 *
 * Each content part, reasoning item and function call is one piece. Its text comes in deltas; what the closing
 * events (`…done`, `output_item.done`, the terminal response) hold beyond them is taken from there, so that an
 * upstream without deltas loses nothing.
 */
import type { CodecContext, EndCause, SseEvent, StreamReader } from "../codecs.ts";
import { BlockOrder } from "../block-order.ts";
import type { Piece } from "../block-order.ts";
import { arrayOf, countOf, objectOf, parseJson, stringOf, textOf } from "../fields.ts";
import { parsedInput } from "../tool-input.ts";
import { corruptAnswer, cutAnswer, inBandError } from "../upstream-error.ts";
import { writtenText, weightOf } from "../output-estimate.ts";
import { countedUsage, readResponsesUsage } from "../usage.ts";
import { refusalDetails } from "../refusal.ts";
import {
  SUMMARY_BREAK,
  callId,
  isResponsesLimit,
  readPart,
  readReasoningMark,
  reasoningTexts,
  responsesStopReason,
  weighResponses,
} from "./read-response.ts";
import type { JsonObject, MessagesEvent, MessagesUsage } from "../messages/types.ts";

/** Output items of one answer; a broken upstream must not fill the memory with empty ones. */
const MAX_ITEMS = 4_096;

/** An output item under way. */
interface Item {
  /** Content parts by content index; reasoning and calls have one piece, number 0. */
  readonly pieces: Map<number, Piece>;
  /** Reasoning: which of the two forms came first (the other one repeats it), and the last summary part. */
  reasoning: { form: "summary" | "raw"; part: number } | null;
  done: boolean;
}

export class ResponsesStreamReader implements StreamReader {
  readonly #context: CodecContext;
  readonly #blocks: BlockOrder;
  readonly #items = new Map<number, Item>();
  #started = false;
  #refused = false;
  #reported: MessagesUsage | null = null;
  /** The last one that an event named. */
  #tier: string | null = null;
  #failed = false;
  /** Of what a failure says was written by then. */
  #failedWeight = 0;
  #over = false;

  constructor(context: CodecContext) {
    this.#context = context;
    this.#blocks = new BlockOrder(context);
  }

  get usage(): MessagesUsage {
    const written = () => writtenText(this.#weight);
    return countedUsage(this.#reported, this.#context, written, true, this.#tier);
  }

  get isFree(): boolean {
    return this.#failed && this.#reported === null && this.#weight === 0;
  }

  get #weight(): number {
    return Math.max(this.#blocks.weight, this.#failedWeight);
  }

  step(event: SseEvent): MessagesEvent[] {
    if (this.#over || event.data === "" || event.data.startsWith("[DONE]")) return [];
    const data = objectOf(parseJson(event.data));
    if (data === null) throw corruptAnswer("an event that is not a JSON object");
    const start = this.#start();
    const end = this.#event(data, textOf(data["type"]) ?? event.event);
    if (start === null && end === null) return this.#blocks.take();
    return [...(start ?? []), ...this.#blocks.take(), ...(end ?? [])];
  }

  end(cause: EndCause): MessagesEvent[] {
    if (this.#over) return [];
    throw cause.kind === "failed" ? cause.error : cutAnswer();
  }

  #start(): MessagesEvent[] | null {
    if (this.#started) return null;
    this.#started = true;
    return [
      {
        type: "message_start",
        message: {
          id: this.#context.newId("msg"),
          type: "message",
          role: "assistant",
          model: this.#context.model,
          content: [],
          stop_reason: null,
          stop_sequence: null,
          usage: this.usage,
        },
      },
    ];
  }

  /** Passes one event on; what ends the message comes back. */
  #event(data: JsonObject, type: string): MessagesEvent[] | null {
    const response = objectOf(data["response"]);
    this.#reported = readResponsesUsage(response?.["usage"]) ?? this.#reported;
    this.#tier = stringOf(response?.["service_tier"]) ?? this.#tier;
    const output = countOf(data["output_index"]);
    const delta = stringOf(data["delta"]) ?? "";
    switch (type) {
      case "response.output_text.delta":
      case "response.refusal.delta":
        this.#text(output, countOf(data["content_index"]), delta, type === "response.refusal.delta");
        return null;
      case "response.function_call_arguments.delta":
        this.#blocks.append(this.#call(output, {}), delta);
        return null;
      case "response.reasoning_summary_text.delta":
        this.#reasoning(output, "summary", countOf(data["summary_index"]), delta);
        return null;
      case "response.reasoning_text.delta":
        this.#reasoning(output, "raw", 0, delta);
        return null;
      case "response.output_text.done":
        this.#closeText(output, countOf(data["content_index"]), stringOf(data["text"]) ?? "", false);
        return null;
      case "response.refusal.done":
        this.#closeText(output, countOf(data["content_index"]), stringOf(data["refusal"]) ?? "", true);
        return null;
      case "response.content_part.done": {
        const { text, isRefusal } = readPart(objectOf(data["part"]));
        if (text !== "") this.#closeText(output, countOf(data["content_index"]), text, isRefusal);
        return null;
      }
      case "response.function_call_arguments.done":
        // It may name the function, but never the call's id: an item that is not known yet has to wait for its own.
        this.#closeCall(output, { arguments: data["arguments"] ?? "" });
        return null;
      case "response.output_item.added":
        this.#opened(output, objectOf(data["item"]) ?? {});
        return null;
      case "response.output_item.done":
        this.#closed(output, objectOf(data["item"]) ?? {});
        return null;
      case "response.completed":
      case "response.incomplete":
        return this.#finished(response ?? {}, type);
      case "response.failed":
      case "response.cancelled":
        this.#failed = type === "response.failed";
        this.#failedWeight = weighResponses(response ?? {});
        throw inBandError({ error: objectOf(response?.["error"]) ?? {} });
      case "error":
        throw inBandError(data);
      default:
        return null;
    }
  }

  #item(output: number): Item {
    const known = this.#items.get(output);
    if (known !== undefined) return known;
    if (this.#items.size >= MAX_ITEMS) throw corruptAnswer("too many output items");
    const item: Item = { pieces: new Map(), reasoning: null, done: false };
    this.#items.set(output, item);
    return item;
  }

  #opened(output: number, item: JsonObject): void {
    if (item["type"] === "function_call") this.#call(output, item);
    else this.#item(output);
  }

  /** The item as a whole: everything that no delta brought, and what only the end knows. */
  #closed(output: number, item: JsonObject): void {
    const { done, pieces } = this.#item(output);
    if (done) return;
    if (item["type"] === "function_call") this.#closeCall(output, item);
    else if (item["type"] === "reasoning") this.#closeReasoning(output, item);
    else if (item["type"] === "message")
      (arrayOf(item["content"]) ?? []).forEach((value, index) => {
        const { text, isRefusal } = readPart(objectOf(value));
        if (text !== "") this.#closeText(output, index, text, isRefusal);
      });
    for (const piece of pieces.values()) this.#blocks.end(piece);
    this.#item(output).done = true;
  }

  #text(output: number, content: number, delta: string, isRefusal: boolean): void {
    this.#refused ||= isRefusal;
    if (delta === "") return;
    const { pieces } = this.#item(output);
    let piece = pieces.get(content);
    if (piece === undefined) {
      piece = this.#blocks.add("text");
      pieces.set(content, piece);
    }
    this.#blocks.append(piece, delta);
  }

  #closeText(output: number, content: number, whole: string, isRefusal: boolean): void {
    const seen = this.#item(output).pieces.get(content);
    if (seen?.ended === true) return;
    this.#text(output, content, whole.slice(seen?.length ?? 0), isRefusal);
    const piece = this.#item(output).pieces.get(content);
    if (piece !== undefined) this.#blocks.end(piece);
  }

  #call(output: number, item: JsonObject): Piece {
    const { pieces } = this.#item(output);
    const known = pieces.get(0);
    if (known !== undefined) return known;
    const piece = this.#blocks.add("tool_use", callId(item, this.#context), textOf(item["name"]) ?? "");
    pieces.set(0, piece);
    return piece;
  }

  /** `arguments.done` and `output_item.done` both hold the whole arguments. */
  #closeCall(output: number, whole: JsonObject): void {
    const piece = this.#call(output, whole);
    if (piece.ended) return;
    if (textOf(whole["call_id"]) !== null) this.#blocks.identify(piece, callId(whole, this.#context));
    const name = textOf(whole["name"]);
    if (name !== null) this.#blocks.rename(piece, name);
    const parsed = parsedInput(whole["arguments"]);
    const json = parsed === null ? (stringOf(whole["arguments"]) ?? "") : JSON.stringify(parsed);
    this.#blocks.append(piece, json.slice(piece.json.length));
    // Without a name the item's end, which may bring it, has to be waited for.
    if (piece.name !== "") this.#blocks.end(piece);
  }

  #reasoning(output: number, form: "summary" | "raw", part: number, delta: string): void {
    if (delta === "") return;
    const item = this.#item(output);
    item.reasoning ??= { form, part };
    if (item.reasoning.form !== form) return;
    const piece = this.#thinking(item);
    if (part !== item.reasoning.part) this.#blocks.append(piece, SUMMARY_BREAK, 0);
    item.reasoning.part = part;
    this.#blocks.append(piece, delta);
  }

  #thinking(item: Item): Piece {
    const known = item.pieces.get(0);
    if (known !== undefined) return known;
    const piece = this.#blocks.add("thinking");
    piece.signature = readReasoningMark({});
    item.pieces.set(0, piece);
    return piece;
  }

  #closeReasoning(output: number, whole: JsonObject): void {
    const item = this.#item(output);
    const texts = reasoningTexts(whole, item.reasoning?.form);
    const text = texts.join(SUMMARY_BREAK);
    if (item.pieces.size === 0 && text === "" && textOf(whole["encrypted_content"]) === null) return;
    const piece = this.#thinking(item);
    const weight = texts.reduce((sum, each) => sum + weightOf(each), -piece.weight);
    this.#blocks.append(piece, text.slice(piece.length), Math.max(0, weight));
    piece.signature = readReasoningMark(whole);
  }

  #finished(response: JsonObject, type: string): MessagesEvent[] {
    (arrayOf(response["output"]) ?? []).forEach((item, index) => this.#closed(index, objectOf(item) ?? {}));
    const status = type === "response.incomplete" ? "incomplete" : (response["status"] ?? "completed");
    const ended = { ...response, status };
    const { calledTools } = this.#blocks.endAll(isResponsesLimit(ended));
    const stop = responsesStopReason(ended, calledTools, this.#refused);
    this.#over = true;
    return [
      ...this.#blocks.take(),
      {
        type: "message_delta",
        delta: {
          stop_reason: stop,
          stop_sequence: null,
          ...(stop === "refusal" ? { stop_details: refusalDetails } : {}),
        },
        usage: this.usage,
      },
      { type: "message_stop" },
    ];
  }
}
