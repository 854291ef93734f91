/** Reads a Responses upstream's whole answer into Messages form (dialects.md §C3, §D2–§D4). */
import type { CodecContext } from "../codecs.ts";
import { CallIds } from "../call-ids.ts";
import { arrayOf, objectOf, stringOf, textOf } from "../fields.ts";
import { readLogprobs } from "../logprobs.ts";
import { markReasoning } from "../reasoning.ts";
import { callsTools, parsedInput, toolInput } from "../tool-input.ts";
import type { ApiError } from "../../lib/api-error.ts";
import { corruptAnswer, holdsError, inBandError } from "../upstream-error.ts";
import { type WeighText, writtenText, weightOf, weightOfArguments } from "../output-estimate.ts";
import { readUrlCitations } from "../url-citations.ts";
import { countedUsage, readResponsesUsage } from "../usage.ts";
import { foreignEnd } from "../refusal.ts";
import type {
  ContentBlock,
  JsonObject,
  Logprob,
  MessagesResponse,
  StopReason,
  UrlCitation,
} from "../messages/types.ts";

/** Separator of two summary parts of one reasoning item. */
export const SUMMARY_BREAK = "\n\n";

/** @throws ApiError `upstream_error` when the response failed, is unfinished, or lacks its output. */
export function readResponsesResponse(body: JsonObject, context: CodecContext): MessagesResponse {
  const failure = failureOfResponse(body);
  if (failure !== null) throw failure;
  const items = arrayOf(body["output"]);
  if (items === null) throw corruptAnswer("no output");

  const content: ContentBlock[] = [];
  let refused = false;
  const ids = new CallIds(context);
  const isCut = isResponsesLimit(body);
  for (const [index, value] of items.entries()) {
    const item = objectOf(value);
    if (item === null) throw corruptAnswer("an output item that is no object");
    if (item["type"] === "message") refused = readMessageItem(item, content, context) || refused;
    else if (item["type"] === "function_call")
      content.push(readCall(item, context, ids, isCut && index === items.length - 1));
    else if (item["type"] === "reasoning") {
      const thinking = reasoningTexts(item).join(SUMMARY_BREAK);
      const signature = readReasoningMark(item);
      if (thinking !== "" || textOf(item["encrypted_content"]) !== null)
        content.push({ type: "thinking", thinking, signature });
    }
  }
  const stop = responsesStopReason(body, callsTools(content, isCut), refused);
  return {
    id: context.newId("msg"),
    type: "message",
    role: "assistant",
    model: context.model,
    content,
    ...foreignEnd(stop),
    usage: countedUsage(
      readResponsesUsage(body["usage"]),
      context,
      () => writtenText(weighResponses(body)),
      true,
      stringOf(body["service_tier"]),
    ),
  };
}

/** Weighs the output of a whole answer. */
export const weighResponses = (body: JsonObject): number =>
  (arrayOf(body["output"]) ?? []).reduce<number>((sum, item) => sum + weighItem(objectOf(item) ?? {}), 0);

/** Weighs an output item. In an answer that was cut it may lack its type, and so may its last part. */
export function weighItem(item: JsonObject, weighText: WeighText = weightOf): number {
  const type = item["type"] ?? (item["arguments"] === undefined ? "message" : "function_call");
  if (type === "function_call") return weightOfArguments(item["arguments"], weighText);
  const parts = type === "message" ? (arrayOf(item["content"]) ?? []) : [];
  const texts =
    type === "reasoning"
      ? reasoningTexts(item)
      : parts.map((part) => readPart({ type: "output_text", ...objectOf(part) }).text);
  return texts.reduce((sum, text) => sum + weighText(text), 0);
}

/** Whether a body is a whole response, and no other dialect's answer. */
export const isResponse = (body: JsonObject): boolean =>
  body["object"] === "response" || body["output"] !== undefined;

/** Whether a whole response reports its own failure, as an error body with status 200 does. */
export const isFailedResponse = (body: JsonObject): boolean =>
  isResponse(body) && (body["status"] === "failed" || holdsError(body));

/** Returns the error of a whole response that is no answer (dialects.md §D3); null when it is one. */
export function failureOfResponse(body: JsonObject): ApiError | null {
  if (holdsError(body) || body["status"] === "failed") return inBandError({ error: body["error"] || {} });
  const status = textOf(body["status"]);
  return isEndedStatus(status) ? null : corruptAnswer(`status ${status}`);
}

/** Whether a response with this status is an answer; some upstreams leave it out. */
export const isEndedStatus = (status: string | null | undefined): boolean =>
  (status ?? "") === "" || status === "completed" || status === "incomplete";

/** Adds an item's texts; true when one of them is a refusal. */
function readMessageItem(item: JsonObject, content: ContentBlock[], context: CodecContext): boolean {
  let refused = false;
  for (const value of arrayOf(item["content"]) ?? []) {
    const part = objectOf(value);
    const { text, isRefusal } = readPart(part);
    refused ||= isRefusal;
    const logprobs = partLogprobs(part, context);
    const annotations = partCitations(part, context);
    if (text === "") continue;
    content.push({
      type: "text",
      text,
      ...(logprobs.length > 0 && { logprobs }),
      ...(annotations.length > 0 && { annotations }),
    });
  }
  return refused;
}

/** Returns a content part's text, of a text or of a refusal. */
export function readPart(part: JsonObject | null): { text: string; isRefusal: boolean } {
  if (part?.["type"] === "refusal") return { text: stringOf(part["refusal"]) ?? "", isRefusal: true };
  const isText = part?.["type"] === "output_text" || part?.["type"] === "text";
  return { text: isText ? (stringOf(part["text"]) ?? "") : "", isRefusal: false };
}

/** Reads the log probabilities of a content part's text, or of a piece of it, where the client is shown them. */
export const partLogprobs = (part: JsonObject | null, context: Pick<CodecContext, "logprobs">): Logprob[] =>
  context.logprobs === true ? readLogprobs(part?.["logprobs"]) : [];

/** Reads the citations of a content part, where the client is shown them. */
export const partCitations = (
  part: JsonObject | null,
  context: Pick<CodecContext, "annotations">,
): UrlCitation[] => (context.annotations === true ? readUrlCitations(part?.["annotations"]) : []);

function readCall(item: JsonObject, context: CodecContext, ids: CallIds, isCut: boolean): ContentBlock {
  const name = textOf(item["name"]);
  if (name === null) throw corruptAnswer("a function_call without a name");
  const input =
    parsedInput(item["arguments"]) ??
    toolInput(stringOf(item["arguments"]) ?? "", name, context.serverTools, isCut);
  return { type: "tool_use", id: ids.of(callId(item)), name, input };
}

/** The upstream's id of a call; null: it has none. */
export const callId = (item: JsonObject): string | null => textOf(item["call_id"]) ?? textOf(item["id"]);

/** Returns the summary texts; open models that have none send their raw reasoning. `form`: which of the two is wanted. */
export function reasoningTexts(item: JsonObject, form?: "summary" | "raw"): string[] {
  const texts = (parts: unknown) =>
    (arrayOf(parts) ?? [])
      .map((part) => stringOf(objectOf(part)?.["text"]) ?? "")
      .filter((text) => text !== "");
  const summary = form === "raw" ? [] : texts(item["summary"]);
  if (summary.length > 0 || form === "summary") return summary;
  // Raw reasoning comes in pieces of one text.
  const raw = texts(item["content"]).join("");
  return raw === "" ? [] : [raw];
}

/** Makes the hub signature with which a resent conversation gives the upstream its own item back. */
export const readReasoningMark = (item: JsonObject): string =>
  markReasoning({
    from: "responses",
    id: stringOf(item["id"]) ?? "",
    encrypted: textOf(item["encrypted_content"]),
  });

/** Whether the answer ended at its output limit. */
export const isResponsesLimit = (body: JsonObject): boolean =>
  responsesStopReason(body, false, false) === "max_tokens";

/**
 * Maps the end of an answer (dialects.md §D3). Tool calls decide, whatever the upstream's status.
 * @param toolUsed tools were called, and the last call is whole.
 */
export function responsesStopReason(body: JsonObject, toolUsed: boolean, refused: boolean): StopReason {
  const reason = objectOf(body["incomplete_details"])?.["reason"];
  if (toolUsed) return "tool_use";
  if (refused || reason === "content_filter") return "refusal";
  return body["status"] === "incomplete" ? "max_tokens" : "end_turn";
}
