/** Builds the whole answer from the events of the hub's stream (dialects.md §C1). */
import { parseArguments, unreadArguments } from "../arguments.ts";
import type { Annotate } from "../codecs.ts";
import type {
  BlockDelta,
  CompactionDelta,
  ContentBlock,
  MessageDelta,
  MessagesEvent,
  MessagesResponse,
} from "./types.ts";

export class MessageAccumulator {
  readonly #annotate: Annotate | undefined;
  #message: MessagesResponse | null = null;
  /** Arguments of the open block. */
  #json = "";
  #stopped = false;

  /** @param annotate derives the citations of each text as it ends. */
  constructor(annotate?: Annotate) {
    this.#annotate = annotate;
  }

  push(event: MessagesEvent): void {
    switch (event.type) {
      case "message_start":
        this.#message = { ...event.message, content: [...event.message.content] };
        return;
      case "content_block_start":
        this.#json = "";
        this.#message?.content.push(copyOf(event.content_block));
        return;
      case "content_block_delta":
        return this.#delta(event.delta);
      case "content_block_stop":
        return this.#closeBlock();
      case "message_delta":
        return this.#messageDelta(event);
      case "message_stop":
        this.#stopped = true;
        return;
      case "ping":
    }
  }

  /** Returns the message; null before `message_stop`. */
  whole(): MessagesResponse | null {
    return this.#stopped ? this.#message : null;
  }

  #messageDelta({ delta, usage }: MessageDelta): void {
    const message = this.#message;
    if (message === null) return;
    message.stop_reason = delta.stop_reason;
    message.stop_sequence = delta.stop_sequence;
    if (delta.stop_details !== undefined) message.stop_details = delta.stop_details;
    message.usage = { ...message.usage, estimated: false, ...usage };
  }

  #delta(delta: BlockDelta): void {
    const block = this.#message?.content.at(-1);
    if (block === undefined) return;
    if (delta.type === "input_json_delta") this.#json += delta.partial_json;
    else if (delta.type === "text_delta" && block.type === "text") block.text += delta.text;
    else if (delta.type === "citations_delta" && block.type === "text")
      (block.citations ??= []).push(delta.citation);
    else if (delta.type === "thinking_delta" && block.type === "thinking") block.thinking += delta.thinking;
    else if (delta.type === "signature_delta" && block.type === "thinking")
      block.signature += delta.signature;
    else if (delta.type === "compaction_delta") takeCompaction(block, delta);
  }

  #closeBlock(): void {
    const block: ContentBlock | undefined = this.#message?.content.at(-1);
    const takesInput = block?.type === "tool_use" || block?.type === "server_tool_use";
    if (takesInput && this.#json !== "")
      block.input = parseArguments(this.#json) ?? unreadArguments(this.#json);
    this.#json = "";
    if (block?.type === "text" && this.#annotate !== undefined)
      block.annotations = [...this.#annotate(block.text)];
  }
}

/** Deltas add to the block, and to its list of citations. */
function copyOf(block: ContentBlock): ContentBlock {
  return block.type === "text" && block.citations
    ? { ...block, citations: [...block.citations] }
    : { ...block };
}

/** Copies the values of a compaction's delta into its block. */
export function takeCompaction(block: ContentBlock, { type: _type, ...values }: CompactionDelta): void {
  Object.assign(block, values);
}
