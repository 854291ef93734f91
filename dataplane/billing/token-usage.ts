/** Usage in the ledger's classes. Pure. */
import type { MessagesUsage } from "../dialects/messages/types.ts";
import type { TokenUsage, ToolUsage } from "./meter.ts";

export const noTokens: TokenUsage = {
  input: 0,
  cacheRead: 0,
  cacheWrite5m: 0,
  cacheWrite1h: 0,
  output: 0,
  reasoning: 0,
};
export const noTools: ToolUsage = { webSearches: 0, webFetches: 0, xSearches: 0, xPosts: 0, xProfiles: 0 };

/** Everything that was sent, read from a cache or not. */
export const promptOf = (tokens: TokenUsage): number =>
  tokens.input + tokens.cacheRead + tokens.cacheWrite5m + tokens.cacheWrite1h;

/** Usage as it is billed. A cache write without the 5m/1h split counts as 5m (rule 5.10). */
export function tokensOf(usage: MessagesUsage): TokenUsage {
  const written = usage.cache_creation_input_tokens ?? 0;
  const oneHour = usage.cache_creation?.ephemeral_1h_input_tokens ?? 0;
  const fiveMinutes = usage.cache_creation?.ephemeral_5m_input_tokens ?? 0;
  return {
    input: usage.input_tokens,
    cacheRead: usage.cache_read_input_tokens ?? 0,
    cacheWrite5m: Math.max(fiveMinutes, written - oneHour),
    cacheWrite1h: oneHour,
    output: usage.output_tokens,
    reasoning: Math.min(usage.output_tokens, usage.output_tokens_details?.thinking_tokens ?? 0),
  };
}
