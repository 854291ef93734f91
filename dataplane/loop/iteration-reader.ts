/**
 * Reads one iteration's events: passes on what the client may see at once, keeps what has to wait for the end of the
 * iteration (tool calls), and what goes back to the model. Pure, no I/O.
 *
 * Calls wait because what they mean is known only at the end: a cut or final answer drops them, and a client's call
 * stands after the results of server tools called in the same turn (service.md "How the loop ends").
 */
import { parseArguments } from "../dialects/arguments.ts";
import { takeCompaction } from "../dialects/messages/accumulate.ts";
import type { NewId } from "../lib/ids.ts";
import type {
  BlockDelta,
  Citation,
  ContentBlock,
  ContentBlockParam,
  MessagesEvent,
  MessagesResponse,
  StopReason,
  ToolUseBlock,
} from "../dialects/messages/types.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import type { ToolCall } from "./loop.ts";

/** Makes the client's citations from those, or from the text, of the upstream's dialect. */
export interface Citer {
  /** The model's own citation as the client may see it; null drops it. */
  native(citation: Citation): Citation | null;
  /** Citations for a finished text of a model that has none of its own. */
  ofText(text: string): readonly Citation[];
}

export interface IterationOptions {
  readonly serverTools: ReadonlySet<string>;
  /** Whether the client has tools of its own. */
  readonly clientTools: boolean;
  /** Whether this is the final call: tool calls in its answer are dropped. */
  readonly final: boolean;
  /** Index of the next content block of the client's message. */
  readonly nextIndex: number;
  /** Whether the client's message has begun. */
  readonly started: boolean;
  readonly newId: NewId;
  readonly citer: Citer;
}

const MOST_NAME_LENGTH = 64;

export class IterationReader {
  readonly #options: IterationOptions;
  /** The model's turn, to be sent back to it. */
  readonly blocks: ContentBlockParam[] = [];
  readonly calls: ToolCall[] = [];
  readonly clientCalls: ToolUseBlock[] = [];
  /** Calls of tools that nobody has: the client, which has none, could not answer them. */
  readonly strayCalls: ToolUseBlock[] = [];
  stopReason: StopReason | null = null;
  stopSequence: string | null = null;
  stopDetails: MessagesResponse["stop_details"] = undefined;
  nextIndex: number;
  #open: { block: ContentBlock; index: number; text: string } | null = null;

  constructor(options: IterationOptions) {
    this.#options = options;
    this.nextIndex = options.nextIndex;
  }

  push(event: MessagesEvent): MessagesEvent[] {
    switch (event.type) {
      case "message_start":
        return this.#options.started ? [] : [event];
      case "content_block_start":
        return this.#start(event.content_block);
      case "content_block_delta":
        return this.#delta(event.delta);
      case "content_block_stop":
        return this.#stop();
      case "message_delta":
        this.stopReason = event.delta.stop_reason;
        this.stopSequence = event.delta.stop_sequence;
        if (event.delta.stop_details !== undefined) this.stopDetails = event.delta.stop_details;
        return [];
      case "message_stop":
        return [];
      case "ping":
        return [event];
    }
  }

  #start(block: ContentBlock): MessagesEvent[] {
    const held = block.type === "tool_use";
    const index = held ? -1 : this.nextIndex;
    this.#open = { block: structuredClone(block), index, text: "" };
    if (held) return [];
    this.nextIndex += 1;
    const shown = block.type === "text" ? { ...block, citations: [] } : block;
    return [{ type: "content_block_start", index, content_block: shown }];
  }

  #delta(delta: BlockDelta): MessagesEvent[] {
    const open = this.#open;
    if (open === null) return [];
    const { block, index } = open;
    switch (delta.type) {
      case "text_delta":
        open.text += delta.text;
        break;
      case "thinking_delta":
        if (block.type === "thinking") block.thinking += delta.thinking;
        break;
      case "signature_delta":
        if (block.type === "thinking") block.signature = delta.signature;
        break;
      case "compaction_delta":
        takeCompaction(block, delta);
        break;
      case "input_json_delta":
        open.text += delta.partial_json;
        return [];
      // Annotations of a loop's answer are derived from its tools' results.
      case "annotations_delta":
        return [];
      case "citations_delta": {
        const citation = this.#options.citer.native(delta.citation);
        return citation === null
          ? []
          : [{ type: "content_block_delta", index, delta: { type: "citations_delta", citation } }];
      }
    }
    return [{ type: "content_block_delta", index, delta }];
  }

  #stop(): MessagesEvent[] {
    const open = this.#open;
    this.#open = null;
    if (open === null) return [];
    const { block, index, text } = open;
    if (block.type === "tool_use") {
      this.#call(block, text);
      return [];
    }
    const stop: MessagesEvent = { type: "content_block_stop", index };
    if (block.type !== "text") {
      this.blocks.push(block);
      return [stop];
    }
    const whole = block.text + text;
    // Upstreams refuse empty text in a conversation.
    if (whole !== "") this.blocks.push({ type: "text", text: whole });
    const citations = this.#options.citer.ofText(whole);
    return [
      ...citations.map((citation): MessagesEvent => ({
        type: "content_block_delta",
        index,
        delta: { type: "citations_delta", citation },
      })),
      stop,
    ];
  }

  #call(block: ToolUseBlock, json: string): void {
    if (this.#options.final) return;
    const input = json === "" ? block.input : parseArguments(json);
    if (!this.#options.serverTools.has(block.name)) {
      if (this.#options.clientTools) this.clientCalls.push({ ...block, input: input ?? {} });
      else this.#stray(block.name);
      return;
    }
    const call: ToolCall = { id: this.#options.newId("srvtoolu"), name: block.name as ServerToolName, input };
    this.calls.push(call);
    this.blocks.push({ type: "tool_use", id: call.id, name: call.name, input: input ?? {} });
  }

  /** Its name goes back in a form that every upstream takes. */
  #stray(name: string): void {
    const plain = name.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, MOST_NAME_LENGTH);
    const call: ToolUseBlock = { type: "tool_use", id: this.#options.newId("toolu"), name: plain, input: {} };
    this.strayCalls.push(call);
    this.blocks.push(call);
  }
}
