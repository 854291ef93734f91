/** Reads a Messages upstream's whole answer into the hub (dialects.md §C1). */
import type { CodecContext } from "../codecs.ts";
import { CallIds } from "../call-ids.ts";
import { arrayOf, objectOf, stringOf, textOf } from "../fields.ts";
import { boundedInput, toolInput } from "../tool-input.ts";
import { corruptAnswer, holdsError, inBandError } from "../upstream-error.ts";
import { writtenText, weightOf, weightOfArguments } from "../output-estimate.ts";
import { countedUsage, readMessagesUsage } from "../usage.ts";
import type { ContentBlock, JsonObject, JsonValue, MessagesResponse, StopReason } from "./types.ts";

/** @throws ApiError `upstream_error` without content or with a block that lacks a field of its type. */
export function readMessagesResponse(body: JsonObject, context: CodecContext): MessagesResponse {
  if (body["type"] === "error" || holdsError(body)) throw inBandError(body);
  const blocks = arrayOf(body["content"]);
  if (blocks === null) throw corruptAnswer("no content");
  const isCut = isMessagesLimit(body["stop_reason"]);
  const ids = new CallIds(context, "toolu");
  const content = blocks.map((block, index) =>
    readBlock(block, context, ids, isCut && index === blocks.length - 1),
  );
  const toolUsed = content.some((block) => block.type === "tool_use");
  const reported = objectOf(body["usage"]);
  return {
    id: textOf(body["id"]) ?? context.newId("msg"),
    type: "message",
    role: "assistant",
    model: context.model,
    content,
    stop_reason: messagesStopReason(body["stop_reason"], toolUsed),
    stop_sequence: stringOf(body["stop_sequence"]),
    ...stopDetails(body),
    usage: countedUsage(readMessagesUsage(reported, null), context, () => writtenText(weighMessages(body))),
  };
}

/** Weighs the output of a whole answer. */
export const weighMessages = (body: JsonObject): number =>
  (arrayOf(body["content"]) ?? []).reduce<number>((sum, block) => sum + weighBlock(objectOf(block) ?? {}), 0);

/** Weighs a block. In an answer that was cut it may lack its type. */
function weighBlock({ type, text, thinking, input, content }: JsonObject): number {
  const is = (kind: string, value: unknown) => type === kind || (type === undefined && value !== undefined);
  if (is("text", text)) return weightOf(stringOf(text) ?? "");
  if (is("thinking", thinking)) return weightOf(stringOf(thinking) ?? "");
  if (type === "compaction") return weightOf(stringOf(content) ?? "");
  return weightOfArguments(type === "tool_use" ? (input ?? {}) : objectOf(input));
}

/** Whether an answer with this reason ended at its output limit. */
export const isMessagesLimit = (reason: JsonValue | undefined): boolean =>
  reason === "max_tokens" || reason === "model_context_window_exceeded";

/** Whether the reason ended an answer early: its last call may be half of one, or was not meant. */
export const endsEarly = (reason: StopReason | null): boolean =>
  isMessagesLimit(reason) || reason === "stop_sequence" || reason === "refusal";

/**
 * Returns the upstream's own reason; only the end of an answer with tool calls is corrected. Providers have reasons of their
 * own for it, such as `tool_calls`.
 */
export function messagesStopReason(reason: JsonValue | undefined, toolUsed: boolean): StopReason {
  const given = textOf(reason) as StopReason | null;
  if (toolUsed && !endsEarly(given)) return "tool_use";
  return given ?? "end_turn";
}

/** Returns the `stop_details` of a refusal. */
export function stopDetails(from: JsonObject): Pick<MessagesResponse, "stop_details"> {
  const details = objectOf(from["stop_details"]);
  if (details?.["type"] !== "refusal") return {};
  const { category, explanation } = details;
  return {
    stop_details: { type: "refusal", category: stringOf(category), explanation: stringOf(explanation) },
  };
}

/**
 * Reads a block of an answer; unknown kinds pass as they are.
 * @param isCut the output limit ended the answer with this block.
 */
export function readBlock(value: unknown, context: CodecContext, ids: CallIds, isCut = false): ContentBlock {
  const given = objectOf(value);
  const block = given === null ? null : boundedInput(given);
  const missing = (field: string) => corruptAnswer(`a ${stringOf(block?.["type"])} block without ${field}`);
  switch (block?.["type"]) {
    case "text":
      if (typeof block["text"] !== "string") throw missing("text");
      return withoutHubFields(block) as unknown as ContentBlock;
    case "thinking":
      if (typeof block["thinking"] !== "string") throw missing("thinking");
      return {
        ...block,
        type: "thinking",
        thinking: block["thinking"],
        signature: stringOf(block["signature"]) ?? "",
      };
    case "redacted_thinking":
      if (typeof block["data"] !== "string") throw missing("data");
      break;
    case "tool_use": {
      const name = textOf(block["name"]);
      if (name === null) throw missing("name");
      return {
        ...block,
        type: "tool_use",
        id: ids.of(block["id"]),
        name,
        input: readInput(block["input"], name, context, isCut),
      };
    }
    default:
      if (textOf(block?.["type"]) === null) throw missing("type");
  }
  return block as unknown as ContentBlock;
}

/** Removes fields that the hub has from Chat and Responses upstreams, whose form is known there. */
function withoutHubFields({
  annotations: _annotations,
  logprobs: _logprobs,
  ...text
}: JsonObject): JsonObject {
  return text;
}

function readInput(
  input: JsonValue | undefined,
  name: string,
  { serverTools }: CodecContext,
  isCut: boolean,
): JsonObject {
  const parsed = objectOf(input);
  if (parsed !== null) return parsed;
  if (input === undefined || input === null) return {};
  return toolInput(typeof input === "string" ? input : JSON.stringify(input), name, serverTools, isCut);
}
