/** `GET /v1/organization/usage/completions`. Source: service.md "Reports", rules 5.9–5.14, 5.19. */
import type { CommonQueryMethods } from "slonik";
import { creditsText } from "../billing/credits.ts";
import type { ReportQuery } from "./parameters.ts";
import { LazyList } from "../lib/json-slices.ts";
import { ANSWER_SLICE_MS, Slices } from "../lib/slices.ts";
import { buckets, type Sum, type SumColumn } from "./sums.ts";
import { readUsage, type UsageFace } from "./usage.ts";
import { unixTime, whole } from "./values.ts";

const face = {
  start: "start_time",
  end: "end_time",
  maxLimit: 10_000,
  groups: {
    project_id: "project_id",
    api_key_id: "key_id",
    model: "model",
    batch: "batch",
    service_tier: "service_tier",
  },
  columns: [
    "requests",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "cost_micros",
  ],
} as const satisfies UsageFace<SumColumn>;

/** @param now Unix milliseconds. @throws ApiError 400 naming the parameter. */
export async function completionsUsage(
  pool: CommonQueryMethods,
  organizationId: string,
  query: ReportQuery,
  now: number,
) {
  const { page, sums } = await readUsage(pool, { organizationId, query, now }, face);
  return {
    object: "page",
    data: await buckets(
      page.range,
      sums,
      (sum) => [result(sum)],
      (from, to, results) => ({
        object: "bucket",
        start_time: unixTime(from),
        end_time: unixTime(to),
        results,
      }),
    ),
    results: LazyList.of(await dearestFirst(sums), (sum) => [result(sum)]),
    has_more: page.hasMore,
    next_page: page.next,
  };
}

type UsageSum = Sum<(typeof face.columns)[number]>;

/** Sums the groups over all buckets of the page, the most expensive first. */
async function dearestFirst(sums: readonly UsageSum[]): Promise<readonly UsageSum[]> {
  const slices = new Slices(ANSWER_SLICE_MS);
  const groups = new Map<string, UsageSum>();
  for (const sum of sums) {
    if (slices.usedUp) await slices.pause();
    const { at: _, sums: more, ...of } = sum;
    const key = JSON.stringify(of);
    const known = groups.get(key);
    groups.set(key, known === undefined ? sum : { ...sum, sums: together(known.sums, more) });
  }
  const dearest = (one: UsageSum, other: UsageSum) => Number(other.sums.cost_micros - one.sums.cost_micros);
  return await slices.sorted([...groups.values()], dearest);
}

const together = (some: UsageSum["sums"], more: UsageSum["sums"]): UsageSum["sums"] =>
  Object.fromEntries(face.columns.map((column) => [column, some[column] + more[column]])) as UsageSum["sums"];

function result({ sums, ...of }: UsageSum) {
  const written = sums.cache_write_5m_tokens + sums.cache_write_1h_tokens;
  return {
    object: "organization.usage.completions.result",
    input_tokens: whole(sums.input_tokens + sums.cache_read_tokens + written),
    input_cached_tokens: whole(sums.cache_read_tokens),
    output_tokens: whole(sums.output_tokens),
    num_model_requests: whole(sums.requests),
    credits: creditsText(sums.cost_micros),
    project_id: of.projectId,
    api_key_id: of.keyId,
    model: of.model,
    batch: of.batch,
    service_tier: of.serviceTier,
    tag: of.tag,
  };
}
