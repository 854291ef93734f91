/**
 * Usage rows as releases from before 2026-11-22 wrote them, in JSON: a kept Redis may still hold some, or the ledger
 * parked ones. Pure.
 */
import { z } from "zod";
import { chargeClasses, type ChargeClass } from "./price.ts";
import type { UsageRow } from "./usage-row.ts";

const count = z.number().int().nonnegative();
const micros = z
  .string()
  .regex(/^\d+$/)
  .transform((text) => BigInt(text));

const rowSchema = z.object({
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

/** @throws Error when the text is no row. */
export function decodeJsonRow(text: string): UsageRow {
  const { v: _version, tokens, tools, parts, ...row } = rowSchema.parse(JSON.parse(text));
  return {
    ...row,
    implausible: false,
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
