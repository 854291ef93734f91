/**
 * Writes a stream for a Chat client (dialects.md §C2, service.md "Streams"): the role first, then deltas, then all
 * annotations at once, `finish_reason`, the usage if the client asked for it, `[DONE]`. Server tools are not shown.
 */
import type { ApiError } from "../../lib/api-error.ts";
import { CodePointCount } from "../../lib/code-points.ts";
import type { Annotate, Carry, CodecContext, EarlyEvent, StreamWriter } from "../codecs.ts";
import { chatErrorChunk } from "../errors.ts";
import { objectOf } from "../fields.ts";
import { refusalText } from "../refusal.ts";
import { clientTool } from "../tool-name.ts";
import { movedBy } from "../url-citations.ts";
import { openaiTier, writeChatUsage } from "../write-usage.ts";
import { TextJoiner } from "./text-joiner.ts";
import {
  REASONING_BREAK,
  completionId,
  finishReason,
  isServerTool,
  nested,
  usesFunctions,
} from "./write-response.ts";
import type {
  BlockDelta,
  ContentBlock,
  Logprob,
  MessageDelta,
  MessagesUsage,
  UrlCitation,
} from "../messages/types.ts";

export class ChatStreamWriter implements StreamWriter {
  readonly #carry: Carry;
  readonly #annotate: Annotate | undefined;
  readonly #includeUsage: boolean;
  readonly #usesFunctions: boolean;
  /** The constant bytes of a chunk, before and after its delta. */
  readonly #head: string;
  readonly #choiceHead: string;
  readonly #tail: string;
  /** Set only where server tools may run; elsewhere no line break has to be held back. */
  readonly #joiner: TextJoiner | null;
  /** The text so far, kept only where citations are derived from it. */
  #text = "";
  /** The upstream's citations, with indexes in the whole text. */
  readonly #cited: UrlCitation[] = [];
  /** Code points of the text so far, and those before each text block, in which its citations count. */
  #pointsBefore = 0;
  #points = new CodePointCount();
  readonly #pointsBeforeText = new Map<number, number>();
  /** Whether a text was said since the last server tool. */
  #saidText = false;
  #saidReasoning = false;
  #reasoningBreak = false;
  #toolIndex = -1;
  /** Whether the open block is a call that this client is not shown, nor its arguments. */
  #isHidden = false;
  #end: MessageDelta | null = null;

  constructor(carry: Carry, context: CodecContext, annotate?: Annotate) {
    this.#carry = carry;
    this.#annotate = annotate;
    this.#joiner = carry.serverTools ? new TextJoiner() : null;
    this.#includeUsage = objectOf(carry.request["stream_options"])?.["include_usage"] === true;
    this.#usesFunctions = usesFunctions(carry);
    const id = completionId(context);
    this.#head = `data: {"id":"${id}","object":"chat.completion.chunk","created":${context.createdAt},"model":${JSON.stringify(context.model)},"choices":[`;
    this.#choiceHead = `${this.#head}{"index":0,"delta":`;
    this.#tail = this.#includeUsage ? '],"usage":null}\n\n' : "]}\n\n";
  }

  get keptCharacters(): number {
    return this.#text.length;
  }

  write(event: EarlyEvent): string {
    switch (event.type) {
      case "content_block_delta":
        return this.#delta(event.delta, event.index);
      case "content_block_start":
        return this.#blockStart(event.content_block, event.index);
      case "content_block_stop":
        return "";
      case "message_start":
        return this.#chunk('{"role":"assistant","content":""}');
      case "message_delta":
        this.#end = event;
        return this.#lastWords(event);
      case "ping":
        return ": ping\n\n";
    }
  }

  #blockStart(block: ContentBlock, index: number): string {
    this.#isHidden = block.type === "server_tool_use";
    this.#pointsBefore += this.#points.value;
    this.#points = new CodePointCount();
    if (block.type === "text") this.#pointsBeforeText.set(index, this.#pointsBefore);
    if (block.type === "thinking") this.#reasoningBreak = this.#saidReasoning;
    if (isServerTool(block.type)) {
      this.#joiner?.toolRan();
      this.#saidText = false;
    }
    if (block.type !== "tool_use") return "";
    this.#toolIndex += 1;
    const name = JSON.stringify(clientTool(block.name, this.#carry).name);
    if (this.#usesFunctions) {
      this.#isHidden = this.#toolIndex > 0;
      return this.#isHidden ? "" : this.#chunk(`{"function_call":{"name":${name},"arguments":""}}`);
    }
    const id = JSON.stringify(block.id);
    return this.#chunk(
      `{"tool_calls":[{"index":${this.#toolIndex},"id":${id},"type":"function","function":{"name":${name},"arguments":""}}]}`,
    );
  }

  #delta(delta: BlockDelta, index: number): string {
    switch (delta.type) {
      case "text_delta":
        return this.#say(this.#joiner === null ? delta.text : this.#joiner.push(delta.text), delta.logprobs);
      case "annotations_delta":
        for (const one of movedBy(delta.annotations, this.#pointsBeforeText.get(index) ?? 0))
          this.#cited.push(one);
        return "";
      case "thinking_delta":
        return this.#reason(delta.thinking);
      case "input_json_delta":
        return this.#isHidden ? "" : this.#chunk(this.#arguments(JSON.stringify(delta.partial_json)));
      default:
        return "";
    }
  }

  #arguments(json: string): string {
    return this.#usesFunctions
      ? `{"function_call":{"arguments":${json}}}`
      : `{"tool_calls":[{"index":${this.#toolIndex},"function":{"arguments":${json}}}]}`;
  }

  #say(text: string, logprobs?: readonly Logprob[]): string {
    if (text === "" && logprobs === undefined) return "";
    this.#saidText ||= text !== "";
    if (this.#annotate === undefined) this.#points.add(text);
    else this.#text += text;
    return this.#chunk(
      `{"content":${JSON.stringify(text)}}`,
      logprobs === undefined ? "null" : JSON.stringify({ content: logprobs, refusal: null }),
    );
  }

  #reason(text: string): string {
    if (text === "") return "";
    this.#saidReasoning = true;
    const piece = this.#reasoningBreak ? REASONING_BREAK + text : text;
    this.#reasoningBreak = false;
    return this.#chunk(`{"reasoning_content":${JSON.stringify(piece)}}`);
  }

  /** Writes the last chunks before `finish_reason`: held line breaks, the explanation of a mute refusal, the annotations. */
  #lastWords(event: MessageDelta): string {
    let bytes = this.#say(this.#joiner?.end() ?? "");
    if (event.delta.stop_reason === "refusal" && !this.#saidText) {
      const explanation = refusalText("", { stop_details: event.delta.stop_details ?? null });
      bytes += this.#say(this.#joiner?.push(explanation) ?? explanation);
      bytes += this.#say(this.#joiner?.end() ?? "");
    }
    const cited = nested(this.#annotate?.(this.#text) ?? this.#cited);
    if (cited.length > 0) bytes += this.#chunk(`{"annotations":${JSON.stringify(cited)}}`);
    return bytes;
  }

  terminal(): string {
    const finish = finishReason(this.#end?.delta.stop_reason ?? null, this.#carry);
    const usage: MessagesUsage = { input_tokens: 0, output_tokens: 0, ...this.#end?.usage };
    // The tier is known only now, so earlier chunks do not have it.
    const tier = `"service_tier":${JSON.stringify(openaiTier(usage, "chat"))}`;
    let bytes = `${this.#choiceHead}{},"finish_reason":"${finish}","logprobs":null}],${tier}`;
    bytes += this.#includeUsage
      ? `,"usage":null}\n\n${this.#head}],${tier},"usage":${JSON.stringify(writeChatUsage(usage))}}\n\n`
      : "}\n\n";
    return `${bytes}data: [DONE]\n\n`;
  }

  fail(error: ApiError): string {
    return chatErrorChunk(error);
  }

  #chunk(delta: string, logprobs = "null"): string {
    return `${this.#choiceHead}${delta},"finish_reason":null,"logprobs":${logprobs}}${this.#tail}`;
  }
}
