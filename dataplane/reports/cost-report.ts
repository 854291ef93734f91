/** `GET /v1/organizations/cost_report`. Source: service.md "Reports", rules 5.15–5.19, dialects.md §G, §H1. */
import type { CommonQueryMethods } from "slonik";
import { creditsText } from "../billing/credits.ts";
import { MOST_DAYS, readCharges, type ChargeGroup } from "./charges.ts";
import { readFilters } from "./filters.ts";
import { readGroups, readOnlyPage, readRange, readWidth, type ReportQuery } from "./parameters.ts";
import { LazyList } from "../lib/json-slices.ts";
import { buckets } from "./sums.ts";
import { rupiahText } from "./values.ts";
import { isoSeconds } from "../lib/unix-time.ts";

/** @param now Unix milliseconds. @throws ApiError 400 naming the parameter. */
export async function costReport(
  pool: CommonQueryMethods,
  organizationId: string,
  query: ReportQuery,
  now: number,
) {
  const range = readRange(query, ["starting_at", "ending_at"], readWidth(query, ["1d"]), now, MOST_DAYS);
  const { groups, tag } = readGroups(query, ["description"]);
  const by = { lines: groups.length > 0, tag };
  const filters = readFilters(query, ["starting_at", "ending_at"]);
  const shown = readOnlyPage(query, range);
  const { sums, groupsOf, total } = await readCharges(
    pool,
    { organizationId, range, by, filters },
    "starting_at",
  );
  return {
    results: LazyList.of(total, (group) => [result(group)]),
    data: await buckets(
      shown,
      sums,
      (sum) => groupsOf(sum).map(result),
      (from, to, results) => ({
        starting_at: isoSeconds(from),
        ending_at: isoSeconds(to),
        results,
      }),
    ),
    has_more: false,
    next_page: null,
  };
}

function result({ micros, of, tag }: ChargeGroup) {
  return {
    currency: "IDR",
    amount: rupiahText(micros),
    credits: creditsText(micros),
    description: of?.description ?? null,
    cost_type: of?.costType ?? null,
    model: of?.model ?? null,
    token_type: of?.tokenType ?? null,
    service_tier: of?.serviceTier ?? null,
    tag,
  };
}
