/** `GET /v1/organizations/usage_report/messages`. Source: service.md "Reports", rules 5.9–5.13. */
import type { CommonQueryMethods } from "slonik";
import type { ReportQuery } from "./parameters.ts";
import { buckets, type Sum, type SumColumn } from "./sums.ts";
import { readUsage, type UsageFace } from "./usage.ts";
import { whole } from "./values.ts";
import { isoSeconds } from "../lib/unix-time.ts";

const face = {
  start: "starting_at",
  end: "ending_at",
  maxLimit: 1000,
  groups: {
    api_key_id: "key_id",
    workspace_id: "project_id",
    model: "model",
    service_tier: "service_tier",
    context_window: "context_tokens",
  },
  columns: [
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "web_searches",
    "x_searches",
  ],
} as const satisfies UsageFace<SumColumn>;

/** @param now Unix milliseconds. @throws ApiError 400 naming the parameter. */
export async function messagesUsage(
  pool: CommonQueryMethods,
  organizationId: string,
  query: ReportQuery,
  now: number,
) {
  const { page, sums } = await readUsage(pool, { organizationId, query, now }, face);
  return {
    data: await buckets(
      page.range,
      sums,
      (sum) => [result(sum)],
      (from, to, results) => ({
        starting_at: isoSeconds(from),
        ending_at: isoSeconds(to),
        results,
      }),
    ),
    has_more: page.hasMore,
    next_page: page.next,
  };
}

function result({ sums, ...of }: Sum<(typeof face.columns)[number]>) {
  return {
    uncached_input_tokens: whole(sums.input_tokens),
    cache_read_input_tokens: whole(sums.cache_read_tokens),
    cache_creation: {
      ephemeral_5m_input_tokens: whole(sums.cache_write_5m_tokens),
      ephemeral_1h_input_tokens: whole(sums.cache_write_1h_tokens),
    },
    output_tokens: whole(sums.output_tokens),
    server_tool_use: { web_search_requests: whole(sums.web_searches + sums.x_searches) },
    api_key_id: of.keyId,
    workspace_id: of.projectId,
    model: of.model,
    service_tier: of.serviceTier,
    context_window: of.contextTokens,
    tag: of.tag,
  };
}
