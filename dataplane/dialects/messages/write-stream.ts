/**
 * Writes a stream for a Messages client (dialects.md §C1). The hub has the same grammar, so that nearly every event is
 * written as it is; the frequent ones from templates, because that is five times cheaper than a whole object.
 */
import type { ApiError } from "../../lib/api-error.ts";
import type { Carry, CodecContext, EarlyEvent, StreamWriter } from "../codecs.ts";
import { messagesErrorEvent } from "../errors.ts";
import { sealSignature } from "../reasoning.ts";
import { writeMessagesUsage } from "../write-usage.ts";
import { hidesThinking, sealCompaction, writeBlock, writeMessagesResponse } from "./write-response.ts";
import type { AnnotationsDelta, BlockDelta, MessagesUsage } from "./types.ts";

const frame = (type: string, data: object): string => `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;

export class MessagesStreamWriter implements StreamWriter {
  readonly #carry: Carry;
  readonly #context: CodecContext;
  readonly #hidesThinking: boolean;
  readonly keptCharacters = 0;

  constructor(carry: Carry, context: CodecContext) {
    this.#carry = carry;
    this.#context = context;
    this.#hidesThinking = hidesThinking(carry);
  }

  write(event: EarlyEvent): string {
    switch (event.type) {
      case "content_block_delta":
        if (event.delta.type === "thinking_delta" && this.#hidesThinking) return "";
        if (event.delta.type === "annotations_delta") return "";
        return `event: content_block_delta\ndata: {"type":"content_block_delta","index":${event.index},"delta":${this.#delta(event.delta)}}\n\n`;
      case "content_block_stop":
        return `event: content_block_stop\ndata: {"type":"content_block_stop","index":${event.index}}\n\n`;
      case "content_block_start":
        return frame(event.type, {
          ...event,
          content_block: writeBlock(event.content_block, this.#carry, this.#context),
        });
      case "message_start":
        return frame(event.type, {
          type: event.type,
          message: writeMessagesResponse(event.message, this.#carry, this.#context),
        });
      case "message_delta":
        return frame(event.type, {
          type: event.type,
          delta: { ...event.delta, stop_details: event.delta.stop_details ?? null, container: null },
          usage: deltaUsage(event.usage),
        });
      case "ping":
        return 'event: ping\ndata: {"type":"ping"}\n\n';
    }
  }

  terminal(): string {
    return 'event: message_stop\ndata: {"type":"message_stop"}\n\n';
  }

  fail(error: ApiError): string {
    return messagesErrorEvent(error, this.#context.requestId ?? "");
  }

  #delta(delta: Exclude<BlockDelta, AnnotationsDelta>): string {
    switch (delta.type) {
      case "text_delta":
        return `{"type":"text_delta","text":${JSON.stringify(delta.text)}}`;
      case "input_json_delta":
        return `{"type":"input_json_delta","partial_json":${JSON.stringify(delta.partial_json)}}`;
      case "thinking_delta":
        return `{"type":"thinking_delta","thinking":${JSON.stringify(delta.thinking)}}`;
      case "signature_delta": {
        const signature = sealSignature(delta.signature, this.#context.sealer);
        return `{"type":"signature_delta","signature":${JSON.stringify(signature)}}`;
      }
      case "citations_delta":
        return JSON.stringify(delta);
      case "compaction_delta":
        return JSON.stringify(sealCompaction(delta, this.#context));
    }
  }
}

/** Writes the totals of the whole message: the SDKs lay every number that is not null over those of `message_start`. */
const deltaUsage = (usage: Partial<MessagesUsage> & { output_tokens: number }): object =>
  writeMessagesUsage({ input_tokens: 0, ...usage });
