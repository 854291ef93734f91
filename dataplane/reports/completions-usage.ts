/** `GET /v1/organization/usage/completions`. Source: spec "Completions usage", rules 5.9–5.14, 5.19. */
import type { CommonQueryMethods } from "slonik";
import {
  readBoolean,
  readGroups,
  readList,
  readPage,
  readRange,
  readWidth,
  type ReportQuery,
} from "./parameters.ts";
import { buckets, readSums, type GroupColumn, type Sum, type SumColumn } from "./sums.ts";
import { unixTime, whole } from "./values.ts";

const MAX_LIMIT = 10_000;
const groupColumns = {
  project_id: "project_id",
  api_key_id: "key_id",
  model: "model",
  batch: "batch",
} as const satisfies Record<string, GroupColumn>;
const groups = Object.keys(groupColumns) as (keyof typeof groupColumns)[];

const columns = [
  "requests",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_5m_tokens",
  "cache_write_1h_tokens",
  "output_tokens",
] as const satisfies readonly SumColumn[];

/** @param now Unix milliseconds. @throws ApiError 400 naming the parameter. */
export async function completionsUsage(
  pool: CommonQueryMethods,
  organizationId: string,
  query: ReportQuery,
  now: number,
) {
  const width = readWidth(query, ["1d", "1h"]);
  const page = readPage(query, readRange(query, "start_time", "end_time", width, now), MAX_LIMIT);
  const sums = await readSums(pool, {
    organizationId,
    range: page.range,
    groupBy: readGroups(query, groups).map((group) => groupColumns[group]),
    filters: {
      models: readList(query, ["models"]),
      keyIds: readList(query, ["api_key_ids"]),
      projectIds: readList(query, ["project_ids"]),
      batch: readBoolean(query, "batch"),
    },
    columns,
  });
  return {
    object: "page",
    data: buckets(page.range, sums, (from, to, found) => ({
      object: "bucket",
      start_time: unixTime(from),
      end_time: unixTime(to),
      results: found.map(result),
    })),
    has_more: page.hasMore,
    next_page: page.next,
  };
}

function result({ sums, ...of }: Sum<(typeof columns)[number]>) {
  const written = sums.cache_write_5m_tokens + sums.cache_write_1h_tokens;
  return {
    object: "organization.usage.completions.result",
    input_tokens: whole(sums.input_tokens + sums.cache_read_tokens + written),
    input_cached_tokens: whole(sums.cache_read_tokens),
    output_tokens: whole(sums.output_tokens),
    num_model_requests: whole(sums.requests),
    project_id: of.projectId,
    api_key_id: of.keyId,
    model: of.model,
    batch: of.batch,
  };
}
