/**
 * Writes a stream for a Responses client (dialects.md §C3, service.md "Streams").
 *
 * Consecutive text blocks are the content parts of one message item, which any other visible block closes. A server
 * tool's item stays open from its call to its result, beside whatever comes between.
 */
import type { ApiError } from "../../lib/api-error.ts";
import type { Annotate, Carry, CodecContext, EarlyEvent, StreamWriter } from "../codecs.ts";
import { arrayOf } from "../fields.ts";
import { refusalText } from "../refusal.ts";
import { toolInput } from "../tool-input.ts";
import { NumberedEvents, wirePlace } from "./numbered-events.ts";
import {
  annotationsOf,
  callStatus,
  finishedCallItem,
  finishedItem,
  functionCallItem,
  messageItem,
  reasoningItem,
  serverCall,
  startedCallItem,
  textPart,
} from "./output-items.ts";
import type { ServerCall, ToolResult } from "./output-items.ts";
import { endedResponse, isComplete, responseHead } from "./response-frame.ts";
import type {
  BlockDelta,
  ContentBlock,
  JsonObject,
  Logprob,
  MessageDelta,
  MessageEnd,
  MessagesUsage,
  RedactedThinkingBlock,
  ServerToolUseBlock,
  ThinkingBlock,
  ToolUseBlock,
  UrlCitation,
} from "../messages/types.ts";

/** The open content block. `wire` is the constant part between an event's sequence number and its delta. */
type Open =
  | {
      readonly kind: "text";
      readonly index: number;
      wire: string;
      text: string;
      readonly logprobs: Logprob[];
      readonly citations: UrlCitation[];
    }
  | {
      readonly kind: "thinking";
      readonly id: string;
      readonly output: number;
      wire: string;
      text: string;
      signature: string;
    }
  | {
      readonly kind: "call";
      readonly id: string;
      readonly output: number;
      readonly block: ToolUseBlock;
      readonly wire: string;
      json: string;
    }
  | { readonly kind: "server"; readonly block: ServerToolUseBlock; json: string };

/** The open message item. */
interface OpenMessage {
  readonly id: string;
  readonly output: number;
  readonly parts: JsonObject[];
}

export class ResponsesStreamWriter implements StreamWriter {
  readonly #carry: Carry;
  readonly #context: CodecContext;
  readonly #annotate: Annotate | undefined;
  readonly #head: JsonObject;
  readonly #events = new NumberedEvents();
  /** Finished items by output index; an open item leaves its index empty until it closes. */
  readonly #output: JsonObject[] = [];
  /** The finished content parts by the indexes of their blocks: citations may come later. */
  readonly #parts = new Map<number, JsonObject>();
  #nextOutput = 0;
  #open: Open | null = null;
  #message: OpenMessage | null = null;
  readonly #serverCalls = new Map<string, { call: ServerCall; output: number }>();
  /** Whether a text was said since the last server tool. */
  #saidText = false;
  keptCharacters = 0;
  #end: MessageDelta | null = null;

  constructor(carry: Carry, context: CodecContext, annotate?: Annotate) {
    this.#carry = carry;
    this.#context = context;
    this.#annotate = annotate;
    this.#head = responseHead(context.newId("resp"), carry, context);
  }

  write(event: EarlyEvent): string {
    switch (event.type) {
      case "content_block_delta":
        return event.delta.type === "annotations_delta"
          ? this.#cite(event.index, event.delta.annotations)
          : this.#delta(event.delta);
      case "content_block_start":
        return this.#blockStart(event.content_block, event.index);
      case "content_block_stop":
        return this.#blockStop();
      case "message_start":
        return this.#events.begin(this.#head);
      case "message_delta":
        this.#end = event;
        return this.#closeAll(event.delta);
      case "ping":
        return ": ping\n\n";
    }
  }

  #blockStart(block: ContentBlock, index: number): string {
    switch (block.type) {
      case "text":
        this.#open = { kind: "text", index, wire: "", text: "", logprobs: [], citations: [] };
        return "";
      case "thinking":
        return this.#closeMessage("completed") + this.#thinkingStart(block);
      case "redacted_thinking":
        return this.#closeMessage("completed") + this.#redacted(block);
      case "tool_use":
        return this.#closeMessage("completed") + this.#callStart(block);
      case "server_tool_use":
        this.#open = { kind: "server", block, json: "" };
        return this.#closeMessage("completed");
      case "web_search_tool_result":
      case "web_fetch_tool_result":
        return this.#closeMessage("completed") + this.#serverResult(block);
      default:
        // A block that this dialect has no item for ends a message all the same, as in a whole answer.
        return this.#closeMessage("completed");
    }
  }

  #delta(delta: BlockDelta): string {
    const open = this.#open;
    switch (delta.type) {
      case "text_delta":
        return open?.kind === "text" ? this.#text(open, delta.text, delta.logprobs) : "";
      case "thinking_delta":
        return open?.kind === "thinking" ? this.#thinking(open, delta.thinking) : "";
      case "signature_delta":
        if (open?.kind === "thinking") open.signature += delta.signature;
        return "";
      case "input_json_delta":
        if (open?.kind === "server") open.json += delta.partial_json;
        if (open?.kind !== "call") return "";
        open.json += delta.partial_json;
        this.keptCharacters += delta.partial_json.length;
        return this.#events.delta("response.function_call_arguments.delta", open.wire, delta.partial_json);
      default:
        return "";
    }
  }

  #blockStop(): string {
    const open = this.#open;
    this.#open = null;
    switch (open?.kind) {
      case "text":
        return this.#textStop(open);
      case "thinking":
        return this.#thinkingStop(open);
      case "call":
        return this.#callStop(open);
      case "server":
        return this.#serverStart({ ...open.block, input: { ...open.block.input, ...toolInput(open.json) } });
      case undefined:
        return "";
    }
  }

  // Text: content parts of one message item.

  #text(open: Extract<Open, { kind: "text" }>, text: string, logprobs: readonly Logprob[] = []): string {
    for (const one of logprobs) open.logprobs.push(one);
    // No content part begins without a text.
    if (text === "" && (logprobs.length === 0 || open.text === "")) return "";
    const before = open.text === "" ? this.#textStart(open) : "";
    open.text += text;
    this.keptCharacters += text.length;
    const tail = logprobs.length === 0 ? "[]" : JSON.stringify(logprobs);
    return before + this.#events.delta("response.output_text.delta", open.wire, text, `,"logprobs":${tail}}`);
  }

  #textStart(open: Extract<Open, { kind: "text" }>): string {
    this.#saidText = true;
    let bytes = "";
    if (this.#message === null) {
      this.#message = { id: this.#context.newId("msg"), output: this.#nextOutput++, parts: [] };
      bytes = this.#events.write("response.output_item.added", {
        output_index: this.#message.output,
        item: messageItem(this.#message.id, "in_progress", []),
      });
    }
    const place = this.#place();
    open.wire = wirePlace(place);
    return bytes + this.#events.write("response.content_part.added", { ...place, part: textPart("", []) });
  }

  #place(): { item_id: string; output_index: number; content_index: number } {
    const { id, output, parts } = this.#message ?? { id: "", output: 0, parts: [] };
    return { item_id: id, output_index: output, content_index: parts.length };
  }

  /** Takes citations of a text. Once it is done they have no event: they stand in the whole response at the end. */
  #cite(index: number, citations: readonly UrlCitation[]): string {
    const open = this.#open;
    if (open?.kind === "text" && open.index === index) for (const one of citations) open.citations.push(one);
    else {
      const told = arrayOf(this.#parts.get(index)?.["annotations"]);
      told?.push(...annotationsOf("", undefined, citations));
    }
    return "";
  }

  #textStop({ index, text, logprobs, citations }: Extract<Open, { kind: "text" }>): string {
    if (text === "" || this.#message === null) return "";
    const place = this.#place();
    const annotations = annotationsOf(text, this.#annotate, citations);
    const told = this.#told(text);
    const part = textPart(told, annotations, logprobs);
    let bytes = "";
    annotations.forEach((annotation, index) => {
      bytes += this.#events.write("response.output_text.annotation.added", {
        ...place,
        annotation_index: index,
        annotation,
      });
    });
    bytes += this.#events.write("response.output_text.done", { ...place, text: told, logprobs });
    bytes += this.#events.write("response.content_part.done", { ...place, part });
    this.#message.parts.push(part);
    this.#parts.set(index, part);
    return bytes;
  }

  #closeMessage(status: "completed" | "incomplete"): string {
    if (this.#message === null) return "";
    const { id, output, parts } = this.#message;
    this.#message = null;
    return this.#itemDone(output, messageItem(id, status, parts));
  }

  // Reasoning.

  #thinkingStart(block: ThinkingBlock): string {
    const id = this.#context.newId("rs");
    const output = this.#nextOutput++;
    this.#open = { kind: "thinking", id, output, wire: "", text: "", signature: block.signature };
    return this.#events.write("response.output_item.added", {
      output_index: output,
      item: { id, type: "reasoning", summary: [] },
    });
  }

  #thinking(open: Extract<Open, { kind: "thinking" }>, text: string): string {
    if (text === "") return "";
    let before = "";
    if (open.text === "") {
      const place = { item_id: open.id, output_index: open.output, summary_index: 0 };
      open.wire = wirePlace(place);
      before = this.#events.write("response.reasoning_summary_part.added", {
        ...place,
        part: { type: "summary_text", text: "" },
      });
    }
    open.text += text;
    this.keptCharacters += text.length;
    return before + this.#events.delta("response.reasoning_summary_text.delta", open.wire, text);
  }

  #thinkingStop({ id, output, text, signature }: Extract<Open, { kind: "thinking" }>): string {
    const place = { item_id: id, output_index: output, summary_index: 0 };
    const told = this.#told(text);
    const said =
      text === ""
        ? ""
        : this.#events.write("response.reasoning_summary_text.done", { ...place, text: told }) +
          this.#events.write("response.reasoning_summary_part.done", {
            ...place,
            part: { type: "summary_text", text: told },
          });
    const block: ThinkingBlock = { type: "thinking", thinking: text, signature };
    return said + this.#itemDone(output, reasoningItem(id, block, this.#carry, this.#context, told));
  }

  #redacted(block: RedactedThinkingBlock): string {
    const id = this.#context.newId("rs");
    const output = this.#nextOutput++;
    return (
      this.#events.write("response.output_item.added", {
        output_index: output,
        item: { id, type: "reasoning", summary: [] },
      }) + this.#itemDone(output, reasoningItem(id, block, this.#carry, this.#context))
    );
  }

  // Function calls.

  #callStart(block: ToolUseBlock): string {
    const id = this.#context.newId("fc");
    const output = this.#nextOutput++;
    const wire = wirePlace({ item_id: id, output_index: output });
    this.#open = { kind: "call", id, output, block, wire, json: "" };
    return this.#events.write("response.output_item.added", {
      output_index: output,
      item: functionCallItem(id, block, "", "in_progress", this.#carry),
    });
  }

  #callStop({ id, output, block, json }: Extract<Open, { kind: "call" }>): string {
    const told = this.#told(json);
    const item = functionCallItem(id, block, told, callStatus(json), this.#carry);
    return (
      this.#events.write("response.function_call_arguments.done", {
        item_id: id,
        output_index: output,
        name: item["name"],
        arguments: told,
      }) + this.#itemDone(output, item)
    );
  }

  // Server tools.

  #serverStart(block: ServerToolUseBlock): string {
    this.#saidText = false;
    const call = serverCall(block, this.#context);
    if (call === null) return "";
    const output = this.#nextOutput++;
    this.#serverCalls.set(block.id, { call, output });
    const added = this.#events.write("response.output_item.added", {
      output_index: output,
      item: startedCallItem(call),
    });
    return (
      added + this.#searchEvent(call, output, "in_progress") + this.#searchEvent(call, output, "searching")
    );
  }

  /** Only `web_search_call` has the steps of a search. */
  #searchEvent(call: ServerCall, output: number, step: "in_progress" | "searching" | "completed"): string {
    return call.type === "web_search_call"
      ? this.#events.write(`response.web_search_call.${step}`, { output_index: output, item_id: call.id })
      : "";
  }

  #serverResult(result: ToolResult): string {
    const known = this.#serverCalls.get(result.tool_use_id);
    if (known === undefined) return "";
    this.#serverCalls.delete(result.tool_use_id);
    return this.#serverDone(known.call, known.output, result);
  }

  #serverDone(call: ServerCall, output: number, result: ToolResult | null): string {
    const item = finishedCallItem(call, result);
    const completed = item["status"] === "completed" ? this.#searchEvent(call, output, "completed") : "";
    return completed + this.#itemDone(output, item);
  }

  // The end.

  /** Closes whatever is open: calls without a result were never run, a refusal without text gets its explanation. */
  #closeAll(end: MessageEnd): string {
    let bytes = this.#blockStop();
    if (end.stop_reason === "refusal" && !this.#saidText) {
      const open: Open = { kind: "text", index: -1, wire: "", text: "", logprobs: [], citations: [] };
      bytes += this.#text(open, refusalText("", { stop_details: end.stop_details ?? null }));
      bytes += this.#textStop(open);
    }
    bytes += this.#closeMessage(isComplete(end.stop_reason) ? "completed" : "incomplete");
    for (const { call, output } of this.#serverCalls.values()) bytes += this.#serverDone(call, output, null);
    this.#serverCalls.clear();
    return bytes;
  }

  terminal(): string {
    const reason = this.#end?.delta.stop_reason ?? null;
    const usage: MessagesUsage = { input_tokens: 0, output_tokens: 0, ...this.#end?.usage };
    return this.#events.end(endedResponse(this.#head, reason, this.#output, usage, this.#context));
  }

  fail(error: ApiError): string {
    return this.#events.fail(error);
  }

  /** Returns what stands for a text in the events that tell it. A long one is kept as its JSON, which may be longer. */
  #told(text: string): string {
    const before = this.#events.escapedCharacters;
    // An id that no client is told.
    const told = this.#events.textFor(text, () => this.#context.newId("resp"));
    this.keptCharacters += this.#events.escapedCharacters - before;
    return told;
  }

  #itemDone(output: number, whole: JsonObject): string {
    const item = finishedItem(whole, this.#carry, this.#context, (kept) => this.#events.json(kept));
    this.#output[output] = item;
    return this.#events.write("response.output_item.done", { output_index: output, item });
  }
}
