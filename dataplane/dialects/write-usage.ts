/** Writes token usage in the three dialects (dialects.md §D4). */
import type { JsonObject, MessagesUsage } from "./messages/types.ts";
import { cacheRead, cacheWritten, promptTokens, reasoningTokens } from "./usage.ts";

/** The full Messages shape: the SDKs crash without the two totals, and nulls mean "not reported". */
export function writeMessagesUsage(usage: MessagesUsage): JsonObject {
  const {
    estimated: _estimated,
    implausible: _implausible,
    media: _media,
    tiers: _tiers,
    compactions: _compactions,
    ...reported
  } = usage;
  return {
    ...(reported as unknown as JsonObject),
    cache_creation_input_tokens: usage.cache_creation_input_tokens ?? null,
    cache_read_input_tokens: usage.cache_read_input_tokens ?? null,
    cache_creation: usage.cache_creation ?? null,
    output_tokens_details: usage.output_tokens_details ?? null,
    server_tool_use: usage.server_tool_use ?? null,
    service_tier: messagesTiers.find((tier) => tier === usage.service_tier) ?? "standard",
    inference_geo: usage.inference_geo ?? null,
    speed: usage.speed ?? null,
  };
}

const messagesTiers = ["standard", "priority", "batch"];
const chatTiers = ["default", "flex", "scale", "priority", "fast"];
/** Tiers that Chat has no word for. */
const responsesTiers = ["ultrafast"];

/** Returns the tier that an answer was served by, in OpenAI's words; null for one that the client's dialect has no word for. */
export function openaiTier(
  { service_tier }: Pick<MessagesUsage, "service_tier">,
  client: "chat" | "responses",
): string | null {
  const own = responsesTiers.find((tier) => tier === service_tier);
  if (own !== undefined) return client === "responses" ? own : null;
  return chatTiers.find((tier) => tier === service_tier) ?? "default";
}

export const writeChatUsage = (usage: MessagesUsage): JsonObject => ({
  prompt_tokens: promptTokens(usage),
  completion_tokens: usage.output_tokens,
  total_tokens: promptTokens(usage) + usage.output_tokens,
  prompt_tokens_details: {
    cached_tokens: cacheRead(usage),
    cache_write_tokens: cacheWritten(usage),
    audio_tokens: usage.media?.audioInput ?? 0,
  },
  completion_tokens_details: {
    reasoning_tokens: reasoningTokens(usage),
    audio_tokens: usage.media?.audioOutput ?? 0,
    accepted_prediction_tokens: 0,
    rejected_prediction_tokens: 0,
  },
});

export const writeResponsesUsage = (usage: MessagesUsage): JsonObject => ({
  input_tokens: promptTokens(usage),
  input_tokens_details: { cached_tokens: cacheRead(usage), cache_write_tokens: cacheWritten(usage) },
  output_tokens: usage.output_tokens,
  output_tokens_details: { reasoning_tokens: reasoningTokens(usage) },
  total_tokens: promptTokens(usage) + usage.output_tokens,
});
