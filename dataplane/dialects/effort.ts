/**
 * How hard a model is asked to think: Messages' `thinking` and `output_config.effort` against the one word of
 * Chat and Responses (service.md "Inference"; dialects.md §D1; rule 2.5).
 */
import type { Carry } from "./codecs.ts";
import type { Effort, MessagesRequest } from "./messages/types.ts";
import { isObject } from "../lib/json-object.ts";

export const messagesEfforts = ["low", "medium", "high", "xhigh", "max"] as const satisfies readonly Effort[];
export const openaiEfforts = ["none", "minimal", ...messagesEfforts] as const;
export type OpenAiEffort = (typeof openaiEfforts)[number];

/** The hub's fields for an effort of Chat or Responses. */
export function effortToHub(effort: OpenAiEffort): Pick<MessagesRequest, "thinking" | "output_config"> {
  if (effort === "none") return { thinking: { type: "disabled" } };
  return {
    thinking: { type: "adaptive" },
    output_config: { effort: effort === "minimal" ? "low" : effort },
  };
}

/**
 * Returns the effort that a Chat or Responses upstream is asked for; undefined when the request asks for none. The
 * effort of a Chat or Responses client is sent unchanged (rule 2.1): the hub has no `minimal`.
 */
export function openaiEffort(request: MessagesRequest, carry: Carry): OpenAiEffort | undefined {
  const { reasoning, reasoning_effort } = carry.request;
  if (carry.dialect === "responses")
    return openaiEfforts.find((effort) => isObject(reasoning) && reasoning["effort"] === effort);
  if (carry.dialect === "chat") return openaiEfforts.find((effort) => reasoning_effort === effort);
  if (request.thinking?.type === "disabled") return "none";
  return request.output_config?.effort ?? (request.thinking?.type === "enabled" ? "medium" : undefined);
}

/** `thinking` and effort as a Messages upstream gets them: never `enabled`, never `budget_tokens` (service.md "Inference"). */
export function adaptiveThinking(
  request: MessagesRequest,
): Pick<MessagesRequest, "thinking" | "output_config"> {
  const { thinking, output_config } = request;
  if (thinking === undefined) return output_config === undefined ? {} : { output_config };
  const { budget_tokens: _neverSent, ...asked } = thinking;
  if (asked.type !== "enabled") return { thinking: asked, ...(output_config && { output_config }) };
  return {
    thinking: { ...asked, type: "adaptive" },
    output_config: { ...output_config, effort: output_config?.effort ?? "medium" },
  };
}
