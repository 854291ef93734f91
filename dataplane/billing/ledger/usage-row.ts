/** One request's line in the ledger; its form on the way there: charge-text.ts. Pure. */
import type { FinalUsage, MeteredRequest, TokenUsage, ToolUsage } from "../meter.ts";
import type { Charged } from "../../telemetry/request-summary.ts";
import { billableCount, costMicros, type Cost } from "../prices/price.ts";
import { promptOf } from "../token-usage.ts";

export interface UsageRow {
  readonly id: string;
  /** Unix milliseconds; with the id the row's key. */
  readonly acceptedAt: number;
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string;
  readonly model: string;
  readonly contextTokens: number;
  /** The tier of service that it was charged by (rule 10.2, `TieredCost.tier`). */
  readonly serviceTier: string;
  readonly endpoint: MeteredRequest["endpoint"];
  readonly batchId: string | null;
  /** The tenant's own, as `readTags` writes them; empty: none. */
  readonly tags: string;
  readonly status: FinalUsage["status"];
  readonly iterations: number;
  readonly upstream: string | null;
  readonly estimated: boolean;
  /** Settled from what a dead owner had seen; the owner's own row replaces it, never the other way round. */
  readonly provisional: boolean;
  /** An upstream reported more than is possible, or a tier without a price; the counters hold what was believed. */
  readonly implausible: boolean;
  readonly tokens: TokenUsage;
  readonly tools: ToolUsage;
  readonly cost: Cost;
}

/** The row of a request, charged at the prices it was accepted under. Counters are made billable on the way. */
export function usageRow(request: MeteredRequest, usage: FinalUsage, provisional = false): UsageRow {
  const { tokens, tools, calls } = usage;
  const { tier, total, parts } = costMicros(request.prices, tokens, tools, calls);
  return {
    id: request.id,
    acceptedAt: request.acceptedAt,
    organizationId: request.organizationId,
    projectId: request.projectId,
    keyId: request.keyId,
    model: request.model,
    contextTokens: request.contextTokens,
    serviceTier: tier,
    endpoint: request.endpoint,
    batchId: request.batchId,
    tags: request.tags,
    status: usage.status,
    iterations: Math.min(billableCount(usage.iterations), 1000),
    upstream: usage.upstream,
    estimated: usage.estimated,
    provisional,
    implausible: usage.implausible === true,
    tokens: {
      input: billableCount(tokens.input),
      cacheRead: billableCount(tokens.cacheRead),
      cacheWrite5m: billableCount(tokens.cacheWrite5m),
      cacheWrite1h: billableCount(tokens.cacheWrite1h),
      output: billableCount(tokens.output),
      reasoning: billableCount(tokens.reasoning),
    },
    tools: {
      webSearches: billableCount(tools.webSearches),
      webFetches: billableCount(tools.webFetches),
      xSearches: billableCount(tools.xSearches),
      xPosts: billableCount(tools.xPosts),
      xProfiles: billableCount(tools.xProfiles),
    },
    cost: { total, parts },
  };
}

/** The charge as the request's log line and record show it. */
export const chargedBy = ({ tokens, cost }: UsageRow): Charged => ({
  inputTokens: promptOf(tokens),
  outputTokens: tokens.output,
  micros: cost.total,
});

/** Every token that the request used, for the tokens-per-minute limit. */
export function allTokens(tokens: TokenUsage): number {
  return (
    billableCount(tokens.input) +
    billableCount(tokens.cacheRead) +
    billableCount(tokens.cacheWrite5m) +
    billableCount(tokens.cacheWrite1h) +
    billableCount(tokens.output)
  );
}
