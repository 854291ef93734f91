/** `GET /v1/organization/costs`. Source: service.md "Reports", rules 5.15–5.19, dialects.md §G, §H1. */
import type { CommonQueryMethods } from "slonik";
import { creditsText } from "../billing/credits.ts";
import { readCharges, type ChargeGroup, type ChargesFace } from "./charges.ts";
import type { ReportQuery } from "./parameters.ts";
import { LazyList } from "../lib/json-slices.ts";
import { buckets } from "./sums.ts";
import { rupiahNumber, unixTime } from "./values.ts";

const face: ChargesFace = { start: "start_time", end: "end_time", lines: "line_item" };

/** @param now Unix milliseconds. @throws ApiError 400 naming the parameter. */
export async function costs(
  pool: CommonQueryMethods,
  organizationId: string,
  query: ReportQuery,
  now: number,
) {
  const { shown, sums, groupsOf, total } = await readCharges(pool, { organizationId, query, now }, face);
  return {
    object: "page",
    results: LazyList.of(total, (group) => [result(group)]),
    data: await buckets(
      shown,
      sums,
      (sum) => groupsOf(sum).map(result),
      (from, to, results) => ({
        object: "bucket",
        start_time: unixTime(from),
        end_time: unixTime(to),
        results,
      }),
    ),
    has_more: false,
    next_page: null,
  };
}

function result({ micros, of, tag }: ChargeGroup) {
  return {
    object: "organization.costs.result",
    amount: { value: rupiahNumber(micros), currency: "idr" },
    credits: creditsText(micros),
    line_item: of?.description ?? null,
    project_id: null,
    tag,
  };
}
