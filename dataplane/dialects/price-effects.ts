/**
 * What a request's top-level fields and betas do to the price that a provider charges (rule 10.1, dialects.md §I): the
 * column "price" of docs/dialects.md. A test holds it against the official SDKs' types: a new field is judged here first.
 *
 * - `none`: the token counts tell it all, or the field is refused or served here.
 * - `tier`: another price for the same tokens; goes upstream where the PriceTable names the tier.
 * - `own`: tokens or a class of them with a price of their own.
 * - `account`: names an account of the provider, or what it shall pay for; never goes.
 */
import type { Dialect } from "./dialect.ts";

export type PriceEffect = "none" | "tier" | "own" | "account";

const words = (text: string): readonly string[] => (text === "" ? [] : text.split(" "));

/**
 * Account fields of all three dialects, as an aggregator accepts the fields of one in the others. They never go
 * upstream (rule 10.1).
 */
export const accountFields = words(
  `diagnostics fallbacks fallback_credit_token billing_policy user_profile_id workspace_id models provider plugins search_parameters enable_search multi_agent background_options`,
);

/**
 * The member of a field that names another answer of the provider's account, as `diagnostics` does; it never goes
 * upstream (rule 2.10).
 */
export const foreignAnswer = ["prompt_cache_options", "comparison_response_id"] as const;

export const priceEffects: Readonly<Record<Dialect, Readonly<Record<PriceEffect, readonly string[]>>>> = {
  messages: {
    none: words(
      `model max_tokens messages system tools tool_choice thinking output_config output_format temperature top_p top_k stop_sequences stream metadata context_management compaction betas container mcp_servers thread`,
    ),
    tier: words(`service_tier speed inference_geo reasoning`),
    own: words(`cache_control`),
    account: accountFields,
  },
  chat: {
    none: words(
      `model messages max_tokens max_completion_tokens temperature top_p n stop frequency_penalty presence_penalty logit_bias logprobs top_logprobs seed response_format tools tool_choice parallel_tool_calls functions function_call reasoning_effort verbosity prediction moderation metadata store stream stream_options user safety_identifier prompt_cache_key prompt_cache_options prompt_cache_retention web_search_options container mcp_servers`,
    ),
    tier: words(`service_tier speed inference_geo reasoning`),
    own: words(`modalities audio`),
    account: accountFields,
  },
  responses: {
    none: words(
      `model input instructions max_output_tokens max_tool_calls tools tool_choice parallel_tool_calls temperature top_p top_logprobs text include metadata store stream stream_options truncation user safety_identifier prompt_cache_key prompt_cache_options prompt_cache_retention context_management moderation image access_programs client_metadata betas background conversation previous_response_id prompt container mcp_servers`,
    ),
    tier: words(`service_tier speed inference_geo reasoning`),
    own: [],
    account: accountFields,
  },
};

/** All fields of all dialects, and members of theirs that do something to the price. */
const judged = new Set([
  ...Object.values(priceEffects).flatMap((effects) => Object.values(effects).flat()),
  "mode",
  "include_usage",
  foreignAnswer[1],
]);
/** Kelvin's sign and the long s are other forms of letters, which only one of the two cases unites. */
const folded = (name: string): string => name.toUpperCase().toLowerCase().replaceAll("_", "");
const foldedJudged = new Set(Array.from(judged, folded));

/**
 * Whether a field is none of ours but one of them to a server that reads names in any case (Go, .NET) or in camel case too
 * (protobuf): such a server may take it in place of the field that was judged here.
 */
const isLookalike = (field: string): boolean => !judged.has(field) && foldedJudged.has(folded(field));

/** Objects with a member that does something to the price. */
export const pricedObjects = ["reasoning", "stream_options", foreignAnswer[0]];

/** Whether no upstream is sent this member of such an object; of a request itself, where `field` is empty. */
export const isUnsent = (field: string, member: string): boolean =>
  isLookalike(member) || (field === foreignAnswer[0] && member === foreignAnswer[1]);

/** Prefixes of `anthropic-beta` values that change a price, each with the tier that it needs; null: the PriceTable's `tiers`. */
export const pricedBetas: readonly (readonly [beginning: string, tier: string | null])[] = [
  ["context-1m-", null],
  ["fast-mode-", "fast"],
];

/** null: the table does not have the field. */
export function priceEffect(dialect: Dialect, field: string): PriceEffect | null {
  const effects = Object.entries(priceEffects[dialect]) as [PriceEffect, readonly string[]][];
  return effects.find(([, fields]) => fields.includes(field))?.[0] ?? null;
}
