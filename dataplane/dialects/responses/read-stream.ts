/**
 * A Responses upstream's stream in Messages form (dialects.md §C3, §D5; lenient as rule 2.14 says).
 *
 *   nothing ──first event──> running ──response.completed | .incomplete──> over
 *
 * Each content part, reasoning item and function call is one piece. Its text comes in deltas; what the closing
 * events (`…done`, `output_item.done`, the terminal response) hold beyond them is taken from there, so that an
 * upstream without deltas loses nothing.
 */
import { CallIds } from "../call-ids.ts";
import type { CodecContext, EndCause, SseEvent, StreamReader } from "../codecs.ts";
import { BlockOrder } from "../block-order.ts";
import type { Piece } from "../block-order.ts";
import { arrayOf, countOf, objectOf, parseJson, stringOf, textOf } from "../fields.ts";
import { parsedInput } from "../tool-input.ts";
import { corruptAnswer, cutAnswer, holdsError, inBandError, kindOfEvent } from "../upstream-error.ts";
import { writtenText, weightOf } from "../output-estimate.ts";
import { countedUsage, readResponsesUsage } from "../usage.ts";
import { foreignEnd } from "../refusal.ts";
import {
  SUMMARY_BREAK,
  callId,
  isResponsesLimit,
  partLogprobs,
  readPart,
  readReasoningMark,
  reasoningTexts,
  responsesStopReason,
  weighResponses,
} from "./read-response.ts";
import { PartCitations } from "./part-citations.ts";
import { itemKinds, itemKind, StreamItems, type Item, type ItemKind } from "./stream-items.ts";
import { messageEnd, messageStart } from "../messages/events.ts";
import type { JsonObject, JsonValue, Logprob, MessagesEvent, MessagesUsage } from "../messages/types.ts";

/** Events that end a response. */
const lastEvents: ReadonlySet<string> = new Set([
  "response.completed",
  "response.incomplete",
  "response.failed",
  "response.cancelled",
]);

export class ResponsesStreamReader implements StreamReader {
  readonly #context: CodecContext;
  readonly #ids: CallIds;
  readonly #blocks: BlockOrder;
  readonly #items = new StreamItems();
  #started = false;
  #refused = false;
  #reported: MessagesUsage | null = null;
  /** Whether the last event reported usage; what is reported before it is a running total. */
  #final = false;
  /** The last service tier that an event named. */
  #tier: string | null = null;
  #failed = false;
  /** Weight of the output that a failed response holds. */
  #failedWeight = 0;
  #over = false;
  readonly #citations: PartCitations;

  constructor(context: CodecContext) {
    this.#context = context;
    this.#ids = new CallIds(context);
    this.#blocks = new BlockOrder(context);
    this.#citations = new PartCitations(this.#blocks, context);
  }

  get usage(): MessagesUsage {
    const written = () => writtenText(this.#weight);
    return countedUsage(this.#reported, this.#context, written, this.#final, this.#tier);
  }

  get isFree(): boolean {
    return this.#failed && this.#reported === null && this.#weight === 0;
  }

  get #weight(): number {
    return Math.max(this.#blocks.weight, this.#failedWeight);
  }

  get keptCharacters(): number {
    return this.#blocks.keptCharacters;
  }

  step(event: SseEvent): MessagesEvent[] {
    if (this.#over || event.data === "" || event.data.startsWith("[DONE]")) return [];
    const data = objectOf(parseJson(event.data));
    if (data === null) throw corruptAnswer("an event that is not a JSON object");
    const start = this.#start();
    const end = this.#event(data, kindOfEvent(data, event.event));
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
    return [messageStart(this.#context.newId("msg"), this.#context.model, this.usage)];
  }

  /** Takes one event; returns the last events of the message at its end. */
  #event(data: JsonObject, type: string): MessagesEvent[] | null {
    const response = objectOf(data["response"]);
    const reported = readResponsesUsage(response?.["usage"]);
    this.#reported = reported ?? this.#reported;
    this.#final = reported !== null && lastEvents.has(type);
    this.#tier = stringOf(response?.["service_tier"]) ?? this.#tier;
    const output = this.#items.placeOf(data, type);
    this.#citations.before(type);
    const delta = stringOf(data["delta"]) ?? "";
    switch (type) {
      case "response.output_text.delta":
        this.#text(output, countOf(data["content_index"]), delta, false, this.#logprobs(data));
        return null;
      case "response.refusal.delta":
        this.#text(output, countOf(data["content_index"]), delta, true);
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
      case "response.output_text.annotation.added": {
        const content = countOf(data["content_index"]);
        const piece = this.#items.at("message", output).pieces.get(content);
        this.#citations.add(piece, { output, content }, data["annotation"] ?? null);
        return null;
      }
      case "response.output_text.done": {
        const text = stringOf(data["text"]) ?? "";
        const piece = this.#restOfText(output, countOf(data["content_index"]), text, false, data);
        if (piece !== undefined) this.#citations.said(piece);
        return null;
      }
      case "response.refusal.done":
        this.#closeText(output, countOf(data["content_index"]), stringOf(data["refusal"]) ?? "", true, null);
        return null;
      case "response.content_part.done": {
        const part = objectOf(data["part"]);
        const { text, isRefusal } = readPart(part);
        const place = countOf(data["content_index"]);
        if (text !== "") this.#closeText(output, place, text, isRefusal, part);
        return null;
      }
      case "response.function_call_arguments.done":
        // It may name the function, but never the call's id: an unknown item has to wait for its own end.
        this.#closeCall(output, { arguments: data["arguments"] ?? "" });
        return null;
      case "response.output_item.added": {
        const item = objectOf(data["item"]) ?? {};
        if (item["type"] === "function_call") this.#call(output, item);
        return null;
      }
      case "response.output_item.done": {
        const item = objectOf(data["item"]) ?? {};
        const kind = itemKind(item);
        if (kind !== undefined) this.#closed(kind, output, item);
        return null;
      }
      case "response.completed":
      case "response.incomplete":
        if (response !== null && holdsError(response)) this.#fail(response, true);
        return this.#finished(response ?? {}, type);
      case "response.failed":
      case "response.cancelled":
        return this.#fail(response ?? {}, type === "response.failed");
      case "error":
        throw inBandError(data);
      default:
        return null;
    }
  }

  /** @param isFree the response reports its own failure: it costs nothing unless it reported or wrote something. */
  #fail(response: JsonObject, isFree: boolean): never {
    this.#failed = isFree;
    this.#failedWeight = weighResponses(response);
    throw inBandError({ error: response["error"] || {} });
  }

  /** Ends an item with its whole form: adds what no delta brought, and what only the end has. */
  #closed(kind: ItemKind, output: number, whole: JsonObject): void {
    const item = this.#items.at(kind, output);
    if (item.done) return this.#citeLate(item, whole);
    if (kind === "function_call") this.#closeCall(output, whole);
    else if (kind === "reasoning") this.#closeReasoning(output, whole);
    else
      (arrayOf(whole["content"]) ?? []).forEach((value, index) => {
        const part = objectOf(value);
        const { text, isRefusal } = readPart(part);
        if (text !== "") this.#closeText(output, index, text, isRefusal, part);
      });
    for (const piece of item.pieces.values()) this.#blocks.end(piece);
    item.done = true;
  }

  /** Adds the citations that an ended message has in its whole form alone. */
  #citeLate({ pieces }: Item, whole: JsonObject): void {
    for (const [index, part] of (arrayOf(whole["content"]) ?? []).entries()) {
      const piece = pieces.get(index);
      if (piece?.kind === "text") this.#citations.late(piece, objectOf(part));
    }
  }

  #logprobs(part: JsonObject | null): Logprob[] {
    return partLogprobs(part, this.#context);
  }

  #text(
    output: number,
    content: number,
    delta: string,
    isRefusal: boolean,
    logprobs: readonly Logprob[] = [],
  ): void {
    this.#refused ||= isRefusal;
    if (delta === "" && logprobs.length === 0) return;
    const { pieces } = this.#items.at("message", output);
    let piece = pieces.get(content);
    if (piece === undefined) {
      piece = this.#blocks.add("text");
      pieces.set(content, piece);
      this.#citations.begun(piece, { output, content });
    }
    this.#blocks.append(piece, delta, undefined, logprobs);
  }

  /**
   * Adds the rest of a whole text.
   * @param part holds the log probabilities of all its tokens; null: none.
   * @returns undefined for an empty text.
   */
  #restOfText(
    output: number,
    content: number,
    whole: string,
    isRefusal: boolean,
    part: JsonObject | null,
  ): Piece | undefined {
    const { pieces } = this.#items.at("message", output);
    const seen = pieces.get(content);
    if (seen?.ended === true) return seen;
    const rest = this.#logprobs(part).slice(seen?.tokens ?? 0);
    this.#text(output, content, whole.slice(seen?.length ?? 0), isRefusal, rest);
    return pieces.get(content);
  }

  #closeText(
    output: number,
    content: number,
    whole: string,
    isRefusal: boolean,
    part: JsonObject | null,
  ): void {
    const piece = this.#restOfText(output, content, whole, isRefusal, part);
    if (piece === undefined) return;
    if (piece.ended) this.#citations.late(piece, part);
    else this.#citations.end(piece, part);
  }

  #call(output: number, item: JsonObject): Piece {
    const { pieces } = this.#items.at("function_call", output);
    const known = pieces.get(0);
    if (known !== undefined) return known;
    const piece = this.#blocks.add("tool_use", this.#ids.of(callId(item)), textOf(item["name"]) ?? "");
    pieces.set(0, piece);
    return piece;
  }

  /** Ends a call: `arguments.done` and `output_item.done` both hold the whole arguments. */
  #closeCall(output: number, whole: JsonObject): void {
    const piece = this.#call(output, whole);
    if (piece.ended) return;
    const id = textOf(whole["call_id"]);
    if (id !== null && !this.#ids.has(id)) this.#blocks.identify(piece, this.#ids.of(id));
    const name = textOf(whole["name"]);
    if (name !== null) this.#blocks.rename(piece, name);
    const parsed = parsedInput(whole["arguments"]);
    const json = parsed === null ? (stringOf(whole["arguments"]) ?? "") : JSON.stringify(parsed);
    this.#blocks.append(piece, json.slice(piece.json.length));
    // Without a name the call waits for its item's end, which may have it.
    if (piece.name !== "") this.#blocks.end(piece);
  }

  #reasoning(output: number, form: "summary" | "raw", part: number, delta: string): void {
    if (delta === "") return;
    const item = this.#items.at("reasoning", output);
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
    const item = this.#items.at("reasoning", output);
    const texts = reasoningTexts(whole, item.reasoning?.form);
    const text = texts.join(SUMMARY_BREAK);
    if (item.pieces.size === 0 && text === "" && textOf(whole["encrypted_content"]) === null) return;
    const piece = this.#thinking(item);
    const weight = texts.reduce((sum, each) => sum + weightOf(each), -piece.weight);
    this.#blocks.append(piece, text.slice(piece.length), Math.max(0, weight));
    piece.signature = readReasoningMark(whole);
  }

  #closeAll(output: readonly JsonValue[]): void {
    const items = output.map((value) => objectOf(value) ?? {});
    const places = new Map(itemKinds.flatMap((kind) => [...this.#items.placesOf(kind, items)]));
    for (const [index, item] of items.entries()) {
      const kind = itemKind(item);
      const place = places.get(index);
      if (kind !== undefined && place !== undefined) this.#closed(kind, place, item);
    }
  }

  #finished(response: JsonObject, type: string): MessagesEvent[] {
    this.#closeAll(arrayOf(response["output"]) ?? []);
    const status = type === "response.incomplete" ? "incomplete" : (response["status"] ?? "completed");
    const ended = { ...response, status };
    const { calledTools } = this.#blocks.endAll(isResponsesLimit(ended));
    const stop = responsesStopReason(ended, calledTools, this.#refused);
    this.#over = true;
    return [...this.#blocks.take(), ...messageEnd(foreignEnd(stop), this.usage)];
  }
}
