/**
 * Compaction of a conversation for Responses clients, where the answer is converted: an input that ends with a
 * `compaction_trigger` has the model write a summary, and the answer is one `compaction` item that holds it sealed. The
 * client sends that item back in place of what it summarizes, to any model; the model then reads the summary as text.
 *
 * Sources: `ResponseInputItem.CompactionTrigger` ("Must be the final input item") and `ResponseCompactionItem` in the
 * types of openai 7.55; codex-rs/core/src/compact_remote_v2.rs in github.com/openai/codex at 009bd870: Codex streams,
 * sends its tools and whole history with `{"type": "compaction_trigger"}` behind it, and wants exactly one finished
 * item of type `compaction` before `response.completed`; later it sends that item behind the user's own messages.
 */
import type { ApiError } from "../../lib/api-error.ts";
import type { Carry, CodecContext, EarlyEvent, Sealer, StreamWriter } from "../codecs.ts";
import type { Cursor } from "../cursor.ts";
import type { JsonObject, MessageDelta, MessagesRequest, MessagesUsage } from "../messages/types.ts";
import { unreadCompaction } from "../reasoning.ts";
import { NumberedEvents } from "./numbered-events.ts";
import { endedResponse, responseHead } from "./response-frame.ts";

/** Prefix of every compaction that was made here. A provider's own is sealed as its reasoning is. */
export const COMPACTED_PREFIX = "gapura_c1_";

/** The user turn that replaces the trigger. */
export const INSTRUCTION = `Write a summary of this conversation. It will replace the conversation: whoever continues, which may be another model, sees the summary and nothing else of what came before. Do not continue the task itself and call no tools.

Keep, as exactly as it matters:
- what the user wants, with every constraint and preference that was stated;
- what was done, found out and decided, and why;
- the names, paths, commands, values and quotations that are needed to go on;
- what is unfinished, what failed, and the next steps.

Be brief about everything else. Answer with the summary alone.`;

const PREFACE =
  "The earlier part of this conversation was replaced by the following summary of it. Go on from there; what it says is done need not be done again.\n\n";

/** Opens a `compaction` item that was made here for this organization into its text. @throws ApiError 400 for any other. */
export function readCompaction(item: Cursor, sealer: Sealer): string {
  const sealed = item.requiredText("encrypted_content");
  const opened = sealed.startsWith(COMPACTED_PREFIX)
    ? sealer.open(sealed.slice(COMPACTED_PREFIX.length))
    : null;
  // The kind is sealed too: sealed reasoning must not open as text, nor a summary as reasoning.
  const summary = opened?.startsWith(COMPACTED_PREFIX) ? opened.slice(COMPACTED_PREFIX.length) : null;
  if (summary === null) throw unreadCompaction("openai", item.at("encrypted_content"));
  return PREFACE + summary;
}

/** Makes the request for the summary: its tools stay, because history calls them, but none may be called. */
export function asCompaction(request: MessagesRequest, hasTools: boolean): MessagesRequest {
  const { tool_choice: _choice, output_config: config, ...rest } = request;
  const { format: _format, ...others } = config ?? {};
  return {
    ...rest,
    ...(hasTools && { tool_choice: { type: "none" } }),
    ...(Object.keys(others).length > 0 && { output_config: others }),
  };
}

/** @returns null where the model wrote nothing: that must not replace the conversation. */
function compactionItem(summary: string, id: string, context: CodecContext): JsonObject | null {
  if (summary.trim() === "") return null;
  const encrypted_content = COMPACTED_PREFIX + context.sealer.seal(COMPACTED_PREFIX + summary);
  const item = { id, type: "compaction", encrypted_content };
  context.keepItem?.(id, JSON.stringify(item));
  return item;
}

/** Makes the output of a whole answer. */
export function compactionOutput(texts: readonly string[], context: CodecContext): JsonObject[] {
  const item = compactionItem(texts.join("\n\n"), context.newId("cmp"), context);
  return item === null ? [] : [item];
}

/** Writes the stream of a compaction, of which only the finished item is shown. */
export class CompactionWriter implements StreamWriter {
  readonly #context: CodecContext;
  readonly #head: JsonObject;
  readonly #id: string;
  readonly #events = new NumberedEvents();
  readonly #texts: string[] = [];
  #end: MessageDelta | null = null;
  keptCharacters = 0;

  constructor(carry: Carry, context: CodecContext) {
    this.#context = context;
    this.#head = responseHead(context.newId("resp"), carry, context);
    this.#id = context.newId("cmp");
  }

  write(event: EarlyEvent): string {
    switch (event.type) {
      case "message_start":
        return this.#events.begin(this.#head);
      case "content_block_start":
        if (event.content_block.type === "text") this.#texts.push(event.content_block.text);
        return "";
      case "content_block_delta":
        if (event.delta.type === "text_delta") {
          this.keptCharacters += event.delta.text.length;
          this.#texts.push((this.#texts.pop() ?? "") + event.delta.text);
        }
        // An SSE comment, so that no connection on the way counts as idle.
        return ": ping\n\n";
      case "message_delta":
        this.#end = event;
        return "";
      case "content_block_stop":
        return "";
      case "ping":
        return ": ping\n\n";
    }
  }

  /** The item leaves only once the request is charged. */
  terminal(): string {
    const item = compactionItem(this.#texts.join("\n\n"), this.#id, this.#context);
    const reason = this.#end?.delta.stop_reason ?? null;
    const usage: MessagesUsage = { input_tokens: 0, output_tokens: 0, ...this.#end?.usage };
    const output = item === null ? [] : [item];
    let bytes = "";
    for (const type of item === null ? [] : ["response.output_item.added", "response.output_item.done"])
      bytes += this.#events.write(type, { output_index: 0, item });
    return bytes + this.#events.end(endedResponse(this.#head, reason, output, usage, this.#context));
  }

  fail(error: ApiError): string {
    return this.#events.fail(error);
  }
}
