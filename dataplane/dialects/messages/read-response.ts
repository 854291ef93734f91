/** A Messages upstream's whole answer as the hub holds it (dialects.md §C1). */
import type { CodecContext } from "../codecs.ts";
import { aliasOfId } from "../alias.ts";
import { arrayOf, objectOf, stringOf, textOf } from "../fields.ts";
import { boundedInput, toolInput } from "../tool-input.ts";
import { corruptAnswer, holdsError, inBandError } from "../upstream-error.ts";
import { writtenText, weightOf, weightOfArguments } from "../output-estimate.ts";
import { countedUsage, readMessagesUsage } from "../usage.ts";
import type { ContentBlock, JsonObject, JsonValue, MessagesResponse, StopReason } from "./types.ts";

/** @throws ApiError `upstream_error` without content or with a block that lacks what makes it one. */
export function readMessagesResponse(body: JsonObject, context: CodecContext): MessagesResponse {
  if (body["type"] === "error" || holdsError(body)) throw inBandError(body);
  const blocks = arrayOf(body["content"]);
  if (blocks === null) throw corruptAnswer("no content");
  const isCut = isMessagesLimit(body["stop_reason"]);
  const content = blocks.map((block, index) =>
    readBlock(block, context, isCut && index === blocks.length - 1),
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

/** What the model wrote in a whole answer. */
export const weighMessages = (body: JsonObject): number =>
  (arrayOf(body["content"]) ?? []).reduce<number>((sum, block) => sum + weighBlock(objectOf(block) ?? {}), 0);

/** One of an answer that was cut may not have come to its type. */
function weighBlock({ type, text, thinking, input }: JsonObject): number {
  const is = (kind: string, value: unknown) => type === kind || (type === undefined && value !== undefined);
  if (is("text", text)) return weightOf(stringOf(text) ?? "");
  if (is("thinking", thinking)) return weightOf(stringOf(thinking) ?? "");
  return weightOfArguments(type === "tool_use" ? (input ?? {}) : objectOf(input));
}

/** Whether an answer with this reason ended at its output limit. */
export const isMessagesLimit = (reason: JsonValue | undefined): boolean =>
  reason === "max_tokens" || reason === "model_context_window_exceeded";

/** Only a tool call's end is put right; every other reason is the upstream's own. */
export function messagesStopReason(reason: JsonValue | undefined, toolUsed: boolean): StopReason {
  const given = textOf(reason) as StopReason | null;
  if (toolUsed && (given === null || given === "end_turn")) return "tool_use";
  return given ?? "end_turn";
}

/** `stop_details` where it says something. */
export function stopDetails(from: JsonObject): Pick<MessagesResponse, "stop_details"> {
  const details = objectOf(from["stop_details"]);
  if (details?.["type"] !== "refusal") return {};
  const { category, explanation } = details;
  return {
    stop_details: { type: "refusal", category: stringOf(category), explanation: stringOf(explanation) },
  };
}

/**
 * A block of an answer; kinds that nobody here knows pass as they are.
 * @param isCut the output limit ended the answer with this block.
 */
export function readBlock(value: unknown, context: CodecContext, isCut = false): ContentBlock {
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
      const id = textOf(block["id"]);
      return {
        ...block,
        type: "tool_use",
        id: id === null ? context.newId("toolu") : aliasOfId(id),
        name,
        input: readInput(block["input"], name, context, isCut),
      };
    }
    default:
      if (textOf(block?.["type"]) === null) throw missing("type");
  }
  return block as unknown as ContentBlock;
}

/** A text without what only Chat and Responses upstreams have: in the hub it is of the forms that are read from them. */
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
