/** A whole answer for a Responses client (dialects.md §C3, §D2–§D4, §E; spec *Response*). */
import type { Annotate, Carry, CodecContext } from "../codecs.ts";
import { writeArguments } from "../arguments.ts";
import { isObject } from "../cursor.ts";
import { refusalText } from "../refusal.ts";
import { openaiTier, writeResponsesUsage } from "../usage.ts";
import {
  annotationsOf,
  finishedCallItem,
  finishedItem,
  functionCallItem,
  messageItem,
  reasoningItem,
  serverCall,
  textPart,
} from "./output-items.ts";
import type { ToolResult } from "./output-items.ts";
import type { JsonObject, JsonValue, MessagesResponse, StopReason } from "../messages/types.ts";

export function writeResponsesResponse(
  response: MessagesResponse,
  carry: Carry,
  context: CodecContext,
  annotate?: Annotate,
): JsonObject {
  return {
    ...responseHead(context.newId("resp"), carry, context),
    ...responseEnd(response.stop_reason, context),
    output: outputItems(response, carry, context, annotate).map((item) => finishedItem(item, carry, context)),
    service_tier: openaiTier(response.usage),
    usage: writeResponsesUsage(response.usage),
  };
}

/** A response that has only begun: everything that is known before the model says a word. */
export function responseHead(id: string, carry: Carry, context: CodecContext): JsonObject {
  const asked = (field: string, otherwise: JsonValue): JsonValue => carry.request[field] ?? otherwise;
  return {
    id,
    object: "response",
    created_at: context.createdAt,
    completed_at: null,
    status: "in_progress",
    access_programs: null,
    background: false,
    conversation: null,
    error: null,
    frequency_penalty: asked("frequency_penalty", 0),
    incomplete_details: null,
    instructions: asked("instructions", null),
    max_output_tokens: asked("max_output_tokens", null),
    max_tool_calls: asked("max_tool_calls", null),
    metadata: asked("metadata", {}),
    model: context.model,
    moderation: null,
    output: [],
    parallel_tool_calls: asked("parallel_tool_calls", true),
    presence_penalty: asked("presence_penalty", 0),
    previous_response_id: null,
    prompt: null,
    prompt_cache_key: asked("prompt_cache_key", null),
    prompt_cache_retention: asked("prompt_cache_retention", null),
    reasoning: asked("reasoning", { effort: null, summary: null }),
    safety_identifier: asked("safety_identifier", null),
    service_tier: "default",
    store: false,
    temperature: asked("temperature", 1),
    text: { format: { type: "text" }, ...(asked("text", {}) as JsonObject) },
    tool_choice: asked("tool_choice", "auto"),
    tools: echoedTools(carry.request["tools"]),
    top_logprobs: asked("top_logprobs", 0),
    top_p: asked("top_p", 1),
    truncation: asked("truncation", "disabled"),
    usage: null,
    user: asked("user", null),
  };
}

/** The client's tools, with what a function's official type always has: here `strict` is false unless it is asked for. */
const echoedTools = (tools: JsonValue | undefined): JsonValue[] =>
  (Array.isArray(tools) ? tools : []).map((tool) =>
    isObject(tool) && tool["type"] === "function"
      ? { ...tool, parameters: tool["parameters"] ?? null, strict: tool["strict"] ?? false }
      : tool,
  );

/** Why an answer is incomplete, by what stopped it (dialects.md §D3). */
const incompleteReasons: Partial<Record<StopReason, string>> = {
  max_tokens: "max_output_tokens",
  model_context_window_exceeded: "max_output_tokens",
  pause_turn: "max_tool_calls",
  refusal: "content_filter",
};

/** Whether an answer that stopped so says all that it had to say. */
export const isComplete = (reason: StopReason | null): boolean =>
  reason === null || incompleteReasons[reason] === undefined;

/** The fields that the end of an answer changes. */
export function responseEnd(reason: StopReason | null, { createdAt, now }: CodecContext): JsonObject {
  const why = reason === null ? undefined : incompleteReasons[reason];
  if (why !== undefined) return { status: "incomplete", incomplete_details: { reason: why } };
  return {
    status: "completed",
    completed_at: Math.max(createdAt, now?.() ?? createdAt),
    incomplete_details: null,
  };
}

function outputItems(
  response: MessagesResponse,
  carry: Carry,
  context: CodecContext,
  annotate: Annotate | undefined,
): JsonObject[] {
  const items: JsonObject[] = [];
  const refused = response.stop_reason === "refusal";
  let parts: JsonObject[] = [];
  const closeMessage = (status: "completed" | "incomplete") => {
    if (parts.length > 0) items.push(messageItem(context.newId("msg"), status, parts));
    parts = [];
  };
  const results = resultsById(response);
  const addText = (text: string) => {
    if (refused) parts.push({ type: "refusal", refusal: text });
    else parts.push(textPart(text, annotationsOf(text, annotate)));
  };
  for (const block of response.content) {
    if (block.type === "text") {
      if (block.text !== "") addText(block.text);
      continue;
    }
    closeMessage("completed");
    switch (block.type) {
      case "thinking":
      case "redacted_thinking":
        items.push(reasoningItem(context.newId("rs"), block, carry, context));
        break;
      case "tool_use":
        items.push(
          functionCallItem(context.newId("fc"), block, writeArguments(block.input), "completed", carry),
        );
        break;
      case "server_tool_use":
        items.push(finishedCallItem(serverCall(block, context), results.get(block.id) ?? null));
        break;
      default:
    }
  }
  if (refused && parts.length === 0) {
    const explanation = refusalText("", response);
    if (explanation !== "") addText(explanation);
  }
  closeMessage(isComplete(response.stop_reason) ? "completed" : "incomplete");
  return items;
}

function resultsById(response: MessagesResponse): Map<string, ToolResult> {
  const results = new Map<string, ToolResult>();
  for (const block of response.content)
    if (block.type === "web_search_tool_result" || block.type === "web_fetch_tool_result")
      results.set(block.tool_use_id, block);
  return results;
}
