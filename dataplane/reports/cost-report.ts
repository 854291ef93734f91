/** `GET /v1/organizations/cost_report`. Source: service.md "Reports", rules 5.15–5.19, dialects.md §G, §H1. */
import type { CommonQueryMethods } from "slonik";
import { creditsText } from "../billing/credits.ts";
import { readCharges, type ChargeGroup, type ChargesFace } from "./charges.ts";
import type { ReportQuery } from "./parameters.ts";
import { LazyList } from "../lib/json-slices.ts";
import { buckets } from "./sums.ts";
import { rupiahText } from "./values.ts";
import { isoSeconds } from "../lib/unix-time.ts";

const face: ChargesFace = { start: "starting_at", end: "ending_at", lines: "description" };

/** @param now Unix milliseconds. @throws ApiError 400 naming the parameter. */
export async function costReport(
  pool: CommonQueryMethods,
  organizationId: string,
  query: ReportQuery,
  now: number,
) {
  const { shown, sums, groupsOf, total } = await readCharges(pool, { organizationId, query, now }, face);
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
