/** Usage in the ledger's classes. Pure. */
import type { MessagesUsage } from "../dialects/messages/types.ts";
import { cacheWrites } from "../dialects/usage.ts";
import type { Observed, TokenUsage, ToolUsage } from "./meter.ts";

export const noTokens: TokenUsage = {
  input: 0,
  cacheRead: 0,
  cacheWrite5m: 0,
  cacheWrite1h: 0,
  output: 0,
  reasoning: 0,
};
export const noTools: ToolUsage = { webSearches: 0, webFetches: 0, xSearches: 0, xPosts: 0, xProfiles: 0 };

/** True without tokens and tools: such a request costs nothing and leaves no row. */
export function isNothing({ tokens, tools }: Observed): boolean {
  const { tiers: _tiers, ...counted } = tokens;
  const counters = [...Object.values(counted), ...Object.values(tools)] as number[];
  return counters.every((counter) => !(counter > 0));
}

/** All input tokens, read from a cache or not. */
export const promptOf = (tokens: TokenUsage): number =>
  tokens.input + tokens.cacheRead + tokens.cacheWrite5m + tokens.cacheWrite1h;

/** Usage as it is billed. */
export function tokensOf(usage: MessagesUsage): TokenUsage {
  const { fiveMinutes, oneHour } = cacheWrites(usage);
  return {
    input: usage.input_tokens,
    cacheRead: usage.cache_read_input_tokens ?? 0,
    cacheWrite5m: fiveMinutes,
    cacheWrite1h: oneHour,
    output: usage.output_tokens,
    reasoning: Math.min(usage.output_tokens, usage.output_tokens_details?.thinking_tokens ?? 0),
    ...mediaTokens(usage),
    ...(usage.tiers !== undefined && { tiers: usage.tiers }),
  };
}

/** The upstream calls of an answer, as they are billed: each compaction before it is one of its own (rule 10.7). */
export function callsOf(usage: MessagesUsage): readonly TokenUsage[] {
  const answer = tokensOf(usage);
  const { compactions, tiers } = usage;
  if (compactions === undefined) return [answer];
  const tiered = tiers && { tiers };
  return [answer, ...compactions.map((one) => ({ ...tokensOf(one), ...tiered }))];
}

/** What an answer without server tools used. */
export function observedOf(usage: MessagesUsage): Observed {
  const calls = callsOf(usage);
  const [only = noTokens] = calls;
  return {
    ...(calls.length === 1 ? { tokens: only } : { tokens: calls.reduce(sumTokens, noTokens), calls }),
    tools: noTools,
    estimated: usage.estimated === true,
    implausible: usage.implausible === true,
  };
}

/** Sums the tokens of two calls; they may be of different tiers, so that the sum names none. */
export const sumTokens = (a: TokenUsage, b: TokenUsage): TokenUsage => ({
  input: a.input + b.input,
  cacheRead: a.cacheRead + b.cacheRead,
  cacheWrite5m: a.cacheWrite5m + b.cacheWrite5m,
  cacheWrite1h: a.cacheWrite1h + b.cacheWrite1h,
  output: a.output + b.output,
  reasoning: a.reasoning + b.reasoning,
  ...summed("audioInput", a, b),
  ...summed("audioOutput", a, b),
  ...summed("imageOutput", a, b),
});

/** Sums tokens of a class that most calls have none of. */
const summed = (name: "audioInput" | "audioOutput" | "imageOutput", a: TokenUsage, b: TokenUsage) => {
  const tokens = (a[name] ?? 0) + (b[name] ?? 0);
  return tokens === 0 ? {} : { [name]: tokens };
};

/** Media tokens, never more than the input and output they are part of (rule 7.9). */
function mediaTokens({ media, input_tokens, output_tokens }: MessagesUsage) {
  if (media === undefined) return {};
  const { audioInput = 0, audioOutput = 0, imageOutput = 0 } = media;
  const spoken = Math.min(audioOutput, output_tokens);
  return {
    audioInput: Math.min(audioInput, input_tokens),
    audioOutput: spoken,
    imageOutput: Math.min(imageOutput, output_tokens - spoken),
  };
}
