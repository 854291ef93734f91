/** The reports of usage and costs, for the OpenAPI document (schemas.ts). */
import { z } from "zod";
import { serverToolNames } from "../../dialects/find-server-tool.ts";
import { credits, isoMoment, named, tokens, unixMoment } from "./schema-parts.ts";

/** Null where the report is not grouped by a tag, and for usage without that tag. */
const tag = z.looseObject({ name: z.string(), value: z.string() }).nullable();
const isoBuckets = <Result extends z.ZodType>(result: Result) => ({
  data: z.array(z.looseObject({ starting_at: isoMoment, ending_at: isoMoment, results: z.array(result) })),
  has_more: z.boolean(),
  next_page: z.int().nullable(),
});
const unixBuckets = <Result extends z.ZodType>(result: Result) => ({
  object: z.literal("page"),
  data: z.array(
    z.looseObject({
      object: z.literal("bucket"),
      start_time: unixMoment,
      end_time: unixMoment,
      results: z.array(result),
    }),
  ),
  has_more: z.boolean(),
  next_page: z.int().nullable(),
});
export const messagesUsageReport = named(
  "MessagesUsageReport",
  z.looseObject(
    isoBuckets(
      z.looseObject({
        uncached_input_tokens: tokens,
        cache_read_input_tokens: tokens,
        cache_creation: z.looseObject({
          ephemeral_5m_input_tokens: tokens,
          ephemeral_1h_input_tokens: tokens,
        }),
        output_tokens: tokens,
        server_tool_use: z.looseObject({ web_search_requests: z.int() }),
        api_key_id: z.string().nullable(),
        workspace_id: z.string().nullable(),
        model: z.string().nullable(),
        service_tier: z.string().nullable(),
        context_window: z.int().nullable(),
        tag,
      }),
    ),
  ),
);
const costReportResult = z.looseObject({
  currency: z.literal("IDR"),
  amount: z.string().describe("Decimal number of rupiah"),
  credits,
  description: z.string().nullable(),
  cost_type: z.enum(["tokens", ...serverToolNames]).nullable(),
  model: z.string().nullable(),
  token_type: z.string().nullable(),
  service_tier: z.string().nullable(),
  tag,
});
export const costReportBody = named(
  "CostReport",
  z.looseObject({ results: z.array(costReportResult), ...isoBuckets(costReportResult) }),
);
const completionsUsageResult = z.looseObject({
  object: z.literal("organization.usage.completions.result"),
  input_tokens: tokens,
  input_cached_tokens: tokens,
  output_tokens: tokens,
  num_model_requests: z.int(),
  credits,
  model: z.string().nullable(),
  api_key_id: z.string().nullable(),
  project_id: z.string().nullable(),
  batch: z.boolean().nullable(),
  service_tier: z.string().nullable(),
  tag,
});
export const completionsUsageBody = named(
  "CompletionsUsage",
  z.looseObject({
    results: z.array(completionsUsageResult).describe("Of all buckets of the page, the dearest first"),
    ...unixBuckets(completionsUsageResult),
  }),
);
const costsResult = z.looseObject({
  object: z.literal("organization.costs.result"),
  amount: z.looseObject({ value: z.number().describe("Rupiah"), currency: z.literal("idr") }),
  credits,
  line_item: z.string().nullable(),
  project_id: z.string().nullable(),
  tag,
});
export const costsBody = named(
  "Costs",
  z.looseObject({ results: z.array(costsResult), ...unixBuckets(costsResult) }),
);
