/** One request's line in the ledger, and its form on the way there. Pure. */
import { z } from "zod";
import type { FinalUsage, MeteredRequest, TokenUsage, ToolUsage } from "./meter.ts";
import { billableCount, chargeClasses, costMicros, type ChargeClass, type Cost } from "./price.ts";

export interface UsageRow {
  readonly id: string;
  /** Unix milliseconds; with the id the row's key. */
  readonly acceptedAt: number;
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string;
  readonly model: string;
  readonly contextTokens: number;
  readonly endpoint: MeteredRequest["endpoint"];
  readonly batchId: string | null;
  readonly status: FinalUsage["status"];
  readonly iterations: number;
  readonly upstream: string | null;
  readonly estimated: boolean;
  /** Settled from what a dead owner had seen; the owner's own row replaces it, never the other way round. */
  readonly provisional: boolean;
  readonly tokens: TokenUsage;
  readonly tools: ToolUsage;
  readonly cost: Cost;
}

/** The row of a request, charged at the prices it was accepted under. Counters are made billable on the way. */
export function usageRow(request: MeteredRequest, usage: FinalUsage, provisional = false): UsageRow {
  const { tokens, tools } = usage;
  return {
    id: request.id,
    acceptedAt: request.acceptedAt,
    organizationId: request.organizationId,
    projectId: request.projectId,
    keyId: request.keyId,
    model: request.model,
    contextTokens: request.contextTokens,
    endpoint: request.endpoint,
    batchId: request.batchId,
    status: usage.status,
    iterations: Math.min(billableCount(usage.iterations), 1000),
    upstream: usage.upstream,
    estimated: usage.estimated,
    provisional,
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
    cost: costMicros(request.prices, tokens, tools),
  };
}

const count = z.number().int().nonnegative();
const micros = z
  .string()
  .regex(/^\d+$/)
  .transform((text) => BigInt(text));

/** The form in the stream: what another pod, perhaps of another release, wrote. */
const encodedSchema = z.object({
  v: z.literal(1),
  id: z.string(),
  acceptedAt: z.number().int(),
  organizationId: z.string(),
  projectId: z.string(),
  keyId: z.string(),
  model: z.string(),
  contextTokens: count,
  endpoint: z.enum(["messages", "chat", "responses", "batch"]),
  batchId: z.string().nullable(),
  status: z.enum(["ok", "error", "cancelled"]),
  iterations: count,
  upstream: z.string().nullable(),
  estimated: z.boolean(),
  provisional: z.boolean(),
  /** Input, cache read, cache write 5m and 1h, output, reasoning. */
  tokens: z.tuple([count, count, count, count, count, count]),
  /** Web searches, web fetches, x_searches, posts, profiles. */
  tools: z.tuple([count, count, count, count, count]),
  /** In the order of `chargeClasses`; they sum to the charge. */
  parts: z.array(micros).length(chargeClasses.length),
});

export function encodeRow(row: UsageRow): string {
  const { tokens, tools, cost } = row;
  // Named one by one: there is a row for each request, and copying the rest of an object is slow.
  const encoded: z.input<typeof encodedSchema> = {
    v: 1,
    id: row.id,
    acceptedAt: row.acceptedAt,
    organizationId: row.organizationId,
    projectId: row.projectId,
    keyId: row.keyId,
    model: row.model,
    contextTokens: row.contextTokens,
    endpoint: row.endpoint,
    batchId: row.batchId,
    status: row.status,
    iterations: row.iterations,
    upstream: row.upstream,
    estimated: row.estimated,
    provisional: row.provisional,
    tokens: [
      tokens.input,
      tokens.cacheRead,
      tokens.cacheWrite5m,
      tokens.cacheWrite1h,
      tokens.output,
      tokens.reasoning,
    ],
    tools: [tools.webSearches, tools.webFetches, tools.xSearches, tools.xPosts, tools.xProfiles],
    parts: chargeClasses.map((charge) => {
      const part = cost.parts[charge];
      return part === 0n ? "0" : part.toString();
    }),
  };
  return JSON.stringify(encoded);
}

/** @throws Error when the text is no row. */
export function decodeRow(text: string): UsageRow {
  const { v: _version, tokens, tools, parts, ...row } = encodedSchema.parse(JSON.parse(text));
  return {
    ...row,
    tokens: {
      input: tokens[0],
      cacheRead: tokens[1],
      cacheWrite5m: tokens[2],
      cacheWrite1h: tokens[3],
      output: tokens[4],
      reasoning: tokens[5],
    },
    tools: {
      webSearches: tools[0],
      webFetches: tools[1],
      xSearches: tools[2],
      xPosts: tools[3],
      xProfiles: tools[4],
    },
    cost: {
      total: parts.reduce((sum, part) => sum + part, 0n),
      parts: Object.fromEntries(chargeClasses.map((charge, index) => [charge, parts[index] ?? 0n])) as Record<
        ChargeClass,
        bigint
      >,
    },
  };
}

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
