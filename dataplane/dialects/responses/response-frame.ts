/** Makes the fields around the output of a Responses answer, at its beginning and at its end (dialects.md §C3, §D3). */
import type { Carry, CodecContext } from "../codecs.ts";
import type { JsonObject, JsonValue, MessagesUsage, StopReason } from "../messages/types.ts";
import { openaiTier, writeResponsesUsage } from "../write-usage.ts";
import { isObject } from "../../lib/json-object.ts";

/** Makes a response that has only begun: all that is known before the model writes a word. */
export function responseHead(id: string, carry: Carry, context: CodecContext): JsonObject {
  const asked = (field: string, otherwise: JsonValue): JsonValue => carry.request[field] ?? otherwise;
  const { format, ...otherText } = asked("text", {}) as JsonObject;
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
    text: { format: format ?? { type: "text" }, ...otherText },
    tool_choice: asked("tool_choice", "auto"),
    tools: echoedTools(carry.request["tools"]),
    top_logprobs: asked("top_logprobs", 0),
    top_p: asked("top_p", 1),
    truncation: asked("truncation", "disabled"),
    usage: null,
    user: asked("user", null),
  };
}

/** Returns the client's tools, with all fields of a function's official type; `strict` is false here unless asked for. */
const echoedTools = (tools: JsonValue | undefined): JsonValue[] =>
  (Array.isArray(tools) ? tools : []).map((tool) =>
    isObject(tool) && tool["type"] === "function"
      ? { ...tool, parameters: tool["parameters"] ?? null, strict: tool["strict"] ?? false }
      : tool,
  );

/** Reasons of an incomplete answer, by its stop reason (dialects.md §D3). */
const incompleteReasons: Partial<Record<StopReason, string>> = {
  max_tokens: "max_output_tokens",
  model_context_window_exceeded: "max_output_tokens",
  pause_turn: "max_tool_calls",
  refusal: "content_filter",
};

/** Whether an answer with this stop reason is complete. */
export const isComplete = (reason: StopReason | null): boolean =>
  reason === null || incompleteReasons[reason] === undefined;

/** Makes a response that has ended. `head`: as it began. */
export function endedResponse(
  head: JsonObject,
  reason: StopReason | null,
  output: JsonObject[],
  usage: MessagesUsage,
  { createdAt, now }: CodecContext,
): JsonObject & { readonly status: "completed" | "incomplete" } {
  const why = reason === null ? undefined : incompleteReasons[reason];
  return {
    ...head,
    ...(why === undefined
      ? { status: "completed", completed_at: Math.max(createdAt, now?.() ?? createdAt) }
      : { status: "incomplete", incomplete_details: { reason: why } }),
    output,
    service_tier: openaiTier(usage, "responses"),
    usage: writeResponsesUsage(usage),
  };
}
