/** Reads usage and costs of whole days from the reports of the API. */
import type { CompletionsUsage, Costs } from "../api/schema.ts";
import { admin } from "../session.ts";
import { addDays, startOfDay } from "./days.ts";
import { sum } from "./decimal.ts";

/** The most buckets that a page of the API holds: a year of hours fits one. */
const PAGE_BUCKETS = 10_000;

export interface Range {
  /** UTC days, both included. */
  readonly from: string;
  readonly to: string;
}

/** Returns the API's form of a range: Unix seconds, the end exclusive. */
const bounds = ({ from, to }: Range) => ({
  start_time: startOfDay(from) / 1000,
  end_time: startOfDay(addDays(to, 1)) / 1000,
});

export type UsageGroup = "model" | "api_key_id" | "project_id" | "service_tier" | "batch" | `tag:${string}`;
/** A tag by its name and its value. */
export type TagFilter = Readonly<Record<string, string>>;
export interface UsageFilters {
  readonly models?: readonly string[];
  readonly api_key_ids?: readonly string[];
  readonly project_ids?: readonly string[];
  readonly service_tiers?: readonly string[];
  readonly batch?: boolean;
  readonly tags?: TagFilter;
}

export type UsageBucket = CompletionsUsage["data"][number];
export type UsageResult = UsageBucket["results"][number];

/** Returns a result's value of the group, as the API writes it: of keys and projects the id, not the name. */
export function groupValue(group: UsageGroup, result: UsageResult): string {
  switch (group) {
    case "model":
    case "api_key_id":
    case "project_id":
    case "service_tier":
      return result[group] ?? "";
    case "batch":
      return String(result.batch);
    default:
      return result.tag?.value ?? "";
  }
}

/** Reads usage and cost of a whole range by groups. */
export async function readGroups(
  range: Range,
  group: UsageGroup,
  filters: UsageFilters,
  signal: AbortSignal,
): Promise<UsageResult[]> {
  const { results } = await admin("GET /v1/organization/usage/completions", {
    query: { ...bounds(range), limit: PAGE_BUCKETS, ...filters, group_by: [group] },
    signal,
  });
  return [...results];
}

export async function readUsage(
  range: Range,
  width: "1d" | "1h",
  group: UsageGroup | null,
  filters: UsageFilters,
  signal: AbortSignal,
): Promise<UsageBucket[]> {
  const buckets: UsageBucket[] = [];
  for (let page: number | null = 1; page !== null;) {
    const answer: CompletionsUsage = await admin("GET /v1/organization/usage/completions", {
      query: {
        ...bounds(range),
        bucket_width: width,
        limit: PAGE_BUCKETS,
        page,
        ...filters,
        ...(group === null ? {} : { group_by: [group] }),
      },
      signal,
    });
    buckets.push(...answer.data);
    page = answer.next_page;
  }
  return buckets;
}

/** The longest range of a report of costs (rule 5.19): a longer one is read in parts. */
export const MOST_COST_DAYS = 366;

/** Returns the parts of a range in order, each at most `MOST_COST_DAYS` long. */
export function costParts(range: Range): Range[] {
  const parts: Range[] = [];
  for (let from = range.from; from <= range.to;) {
    const last = addDays(from, MOST_COST_DAYS - 1);
    const to = last < range.to ? last : range.to;
    parts.push({ from, to });
    from = addDays(to, 1);
  }
  return parts;
}

/** Reads the costs in credits, one entry for each day of the range. */
export async function readCosts(
  range: Range,
  filters: { readonly tags?: TagFilter },
  signal: AbortSignal,
): Promise<{ readonly total: string; readonly days: readonly string[] }> {
  const answers = await Promise.all(
    costParts(range).map((part) =>
      admin("GET /v1/organization/costs", { query: { ...bounds(part), ...filters }, signal }),
    ),
  );
  const creditsOf = (results: Costs["results"]) => sum(results.map(({ credits }) => credits));
  return {
    total: sum(answers.map(({ results }) => creditsOf(results))),
    days: answers.flatMap(({ data }) => data.map(({ results }) => creditsOf(results))),
  };
}

export interface UsageSum {
  readonly requests: number;
  readonly input: number;
  readonly cached: number;
  readonly output: number;
}

export function sumUsage(results: readonly UsageResult[]): UsageSum {
  const total = { requests: 0, input: 0, cached: 0, output: 0 };
  for (const result of results) {
    total.requests += result.num_model_requests;
    total.input += result.input_tokens;
    total.cached += result.input_cached_tokens;
    total.output += result.output_tokens;
  }
  return total;
}

/** Sums results by their `name`, those with the most tokens first. */
export function sumBy(
  results: readonly UsageResult[],
  name: (result: UsageResult) => string,
): { readonly name: string; readonly sum: UsageSum }[] {
  const groups = new Map<string, UsageResult[]>();
  for (const result of results) {
    const group = groups.get(name(result));
    if (group === undefined) groups.set(name(result), [result]);
    else group.push(result);
  }
  const tokens = ({ input, output }: UsageSum) => input + output;
  return Array.from(groups, ([title, members]) => ({ name: title, sum: sumUsage(members) })).sort(
    (one, other) => tokens(other.sum) - tokens(one.sum),
  );
}
