/** The common part of both usage reports (rules 5.9–5.13): a page of days or hours, and the sums of its groups. */
import type { CommonQueryMethods } from "slonik";
import { readFilters } from "./filters.ts";
import {
  readGroups,
  readBucketPage,
  readRange,
  readWidth,
  type BucketPage,
  type ReportAsked,
} from "./parameters.ts";
import { checkHours, readSums, type GroupColumn, type Sum, type SumColumn } from "./sums.ts";

/** What differs between the reports: the names of parameters and groups, and the columns that are shown. */
export interface UsageFace<Column extends SumColumn> {
  readonly start: string;
  readonly end: string;
  /** Most buckets of a page. */
  readonly maxLimit: number;
  readonly groups: Readonly<Record<string, GroupColumn>>;
  readonly columns: readonly Column[];
}

/** @throws ApiError 400 naming the parameter; also for hours of closed months. */
export async function readUsage<Column extends SumColumn>(
  pool: CommonQueryMethods,
  { organizationId, query, now }: ReportAsked,
  { start, end, maxLimit, groups, columns }: UsageFace<Column>,
): Promise<{ readonly page: BucketPage; readonly sums: readonly Sum<Column>[] }> {
  const range = readRange(query, [start, end], readWidth(query, ["1d", "1h"]), now);
  const page = readBucketPage(query, range, maxLimit);
  const asked = readGroups(query, Object.keys(groups));
  const groupBy = asked.groups.flatMap((group) => groups[group] ?? []);
  const sums = await readSums(pool, {
    organizationId,
    range: page.range,
    groupBy,
    groupTag: asked.tag,
    filters: readFilters(query, [start, end]),
    columns,
  });
  await checkHours(pool, range, start);
  return { page, sums };
}
