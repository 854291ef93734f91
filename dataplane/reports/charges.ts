/**
 * The sums of both cost reports: charges by day and, when grouped, by what was charged for (rules 5.15–5.19).
 * The ledger rounds once per request and keeps the parts so that they sum to the charge, so every grouping does.
 */
import type { CommonQueryMethods } from "slonik";
import type { Micros } from "../billing/credits.ts";
import { STANDARD } from "../billing/prices/price.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import { LazyList } from "../lib/json-slices.ts";
import { ANSWER_SLICE_MS, Slices } from "../lib/slices.ts";
import type { Tag } from "../lib/tags.ts";
import { readFilters } from "./filters.ts";
import {
  readGroups,
  readOnlyPage,
  readRange,
  readWidth,
  type BucketRange,
  type ReportAsked,
} from "./parameters.ts";
import { readSums, tooLong, type Sum, type SumColumn } from "./sums.ts";

/** The longest range of a report of costs (rule 5.19). */
export const MOST_DAYS = 366;

/** Everything that is charged for: its names in the reports, and the columns of its credits and its amounts. */
export const lines = [
  {
    costType: "tokens",
    tokenType: "uncached_input_tokens",
    words: "uncached input tokens",
    micros: "input_micros",
    amounts: ["input_tokens"],
  },
  {
    costType: "tokens",
    tokenType: "cache_read_input_tokens",
    words: "cache read input tokens",
    micros: "cache_read_micros",
    amounts: ["cache_read_tokens"],
  },
  {
    costType: "tokens",
    tokenType: "cache_creation.ephemeral_5m_input_tokens",
    words: "5-minute cache write input tokens",
    micros: "cache_write_5m_micros",
    amounts: ["cache_write_5m_tokens"],
  },
  {
    costType: "tokens",
    tokenType: "cache_creation.ephemeral_1h_input_tokens",
    words: "1-hour cache write input tokens",
    micros: "cache_write_1h_micros",
    amounts: ["cache_write_1h_tokens"],
  },
  {
    costType: "tokens",
    tokenType: "output_tokens",
    words: "output tokens",
    micros: "output_micros",
    amounts: ["output_tokens"],
  },
  {
    costType: "web_search",
    tokenType: null,
    words: "web search",
    micros: "web_search_micros",
    amounts: ["web_searches"],
  },
  {
    costType: "web_fetch",
    tokenType: null,
    words: "web fetch",
    micros: "web_fetch_micros",
    amounts: ["web_fetches"],
  },
  {
    costType: "x_search",
    tokenType: null,
    words: "x search",
    micros: "x_search_micros",
    amounts: ["x_searches"],
  },
] as const satisfies readonly {
  costType: "tokens" | ServerToolName;
  tokenType: string | null;
  words: string;
  micros: SumColumn;
  amounts: readonly SumColumn[];
}[];

const columns: readonly SumColumn[] = lines.flatMap(({ micros, amounts }) => [micros, ...amounts]);

/** One row of a cost report: all charges, or those of one group; a field that the report is not grouped by is null. */
export interface ChargeGroup {
  readonly micros: Micros;
  readonly of: {
    readonly description: string;
    readonly costType: (typeof lines)[number]["costType"];
    readonly tokenType: string | null;
    readonly model: string;
    readonly serviceTier: string;
  } | null;
  readonly tag: Tag | null;
}

/** Charges by day, and those of all days together. */
interface ChargeSums {
  /** The days that the page shows. */
  readonly shown: BucketRange;
  readonly sums: readonly Sum<SumColumn>[];
  /** Returns the groups of one day's sum. */
  readonly groupsOf: (sum: Sum<SumColumn>) => readonly ChargeGroup[];
  /** The groups over all days, the most expensive first. */
  readonly total: LazyList<ChargeGroup>;
}

/** A group's charges of all days; its other fields are those of its first day's sum. */
interface Total {
  micros: Micros;
  readonly sum: Sum<SumColumn>;
  /** Index among the sum's groups. */
  readonly place: number;
}

/** Most groups of all days together: each sum has up to eight, and a hundred models in a year have at most this many. */
const MOST_LINES = 300_000;

/** What differs between the reports: the names of the range's ends, and that of the grouping by what was charged for. */
export interface ChargesFace {
  readonly start: string;
  readonly end: string;
  readonly lines: string;
}

/** Reads the charges of a report. @throws ApiError 400 naming the parameter, also when there are too many. */
export async function readCharges(
  pool: CommonQueryMethods,
  { organizationId, query, now }: ReportAsked,
  { start, end, lines: name }: ChargesFace,
): Promise<ChargeSums> {
  const range = readRange(query, [start, end], readWidth(query, ["1d"]), now, MOST_DAYS);
  const { groups, tag: groupTag } = readGroups(query, [name]);
  const byLines = groups.length > 0;
  const filters = readFilters(query, [start, end]);
  const shown = readOnlyPage(query, range);
  const sums = await readSums(pool, {
    organizationId,
    range,
    groupBy: byLines ? ["model", "service_tier"] : [],
    groupTag,
    filters,
    columns: byLines ? columns : ["cost_micros"],
  });
  const groupsOf = (sum: Sum<SumColumn>) => (byLines ? linesOf(sum) : [wholeOf(sum)]);
  const isOfNothing = !byLines && groupTag === null && sums.length === 0;
  const total = isOfNothing
    ? LazyList.of([{ micros: 0n, of: null, tag: null }], (one: ChargeGroup) => [one])
    : await totalOf(sums, groupsOf, start);
  return { shown, sums, groupsOf, total };
}

/** @throws ApiError 400 naming `startName` when there are more than `MOST_LINES`. */
async function totalOf(
  sums: readonly Sum<SumColumn>[],
  groupsOf: ChargeSums["groupsOf"],
  startName: string,
): Promise<LazyList<ChargeGroup>> {
  const slices = new Slices(ANSWER_SLICE_MS);
  let found = 0;
  const totals = new Map<string, Total>();
  for (const sum of sums) {
    if (slices.usedUp) await slices.pause();
    for (const [place, { micros, of, tag }] of groupsOf(sum).entries()) {
      found += 1;
      const key = JSON.stringify([of?.model, of?.serviceTier, of?.costType, of?.tokenType, tag]);
      const known = totals.get(key);
      if (known === undefined) totals.set(key, { micros, sum, place });
      else known.micros += micros;
    }
    if (found > MOST_LINES)
      throw tooLong(MOST_LINES, "lines", startName, "ask for fewer days, or for some models");
  }
  const dearest = (one: Total, other: Total) => Number(other.micros - one.micros);
  const sorted = await slices.sorted([...totals.values()], dearest);
  return LazyList.of(sorted, ({ micros, sum, place }) =>
    groupsOf(sum)
      .slice(place, place + 1)
      .map((group) => ({ ...group, micros })),
  );
}

/** Names a charge for reports and exports; the service tier is named only if it is not the standard one. */
export function describeCharge(model: string, serviceTier: string, words: string): string {
  return [model, ...(serviceTier === STANDARD ? [] : [serviceTier]), words].join(", ");
}

const wholeOf = ({ tag, sums }: Sum<SumColumn>): ChargeGroup => ({ micros: sums.cost_micros, of: null, tag });

/** Returns the lines of one model in one service tier, without those that have neither amount nor cost. */
function linesOf({ model, serviceTier, tag, sums }: Sum<SumColumn>): ChargeGroup[] {
  return lines.flatMap(({ costType, tokenType, words, micros, amounts }) => {
    if (sums[micros] === 0n && amounts.every((column) => sums[column] === 0n)) return [];
    const description = describeCharge(model ?? "", serviceTier ?? "", words);
    const of = { description, costType, tokenType, model: model ?? "", serviceTier: serviceTier ?? "" };
    return [{ micros: sums[micros], of, tag }];
  });
}
