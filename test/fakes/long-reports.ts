/** Reports of the longest kind, over rows as the database tells them: of each day as many keys. */
import type { CommonQueryMethods } from "slonik";
import { DAY_MS } from "../../dataplane/lib/clock.ts";
import { completionsUsage } from "../../dataplane/reports/completions-usage.ts";
import { costReport } from "../../dataplane/reports/cost-report.ts";
import { costs } from "../../dataplane/reports/costs.ts";
import { messagesUsage } from "../../dataplane/reports/messages-usage.ts";

export const GROUPS = 100_000;
export const DAYS = 5;
const start = Date.parse("2026-03-01T00:00:00Z");

const rowOf = (place: number) => ({
  at: start + (place % DAYS) * DAY_MS,
  key_id: `apikey_${place}`,
  project_id: null,
  model: `model-${place}`,
  service_tier: "standard",
  context_tokens: null,
  batch: null,
  tag: null,
  requests: 1n,
  input_tokens: BigInt(place + 1),
  cache_read_tokens: 0n,
  cache_write_5m_tokens: 0n,
  cache_write_1h_tokens: 0n,
  output_tokens: 0n,
  web_searches: 0n,
  x_searches: 0n,
  input_micros: BigInt((place * 7_919) % GROUPS),
  output_micros: 0n,
  cost_micros: BigInt((place * 7_919) % GROUPS),
});
type Row = ReturnType<typeof rowOf>;

export const longRows = (): Row[] => Array.from({ length: GROUPS }, (_, place) => rowOf(place));

/** Answers a statement with the rows of its range. `told`: hears how many they are. */
export const poolOf = (
  rows: () => readonly Row[],
  told: (count: number) => void = () => {},
): CommonQueryMethods =>
  ({
    any: async ({ values }: { readonly values: readonly unknown[] }) => {
      const [from = 0, to = 0] = values.flatMap((value) =>
        typeof value === "string" && /^\d{4}-\d\d-\d\dT.*Z$/.test(value) ? [Date.parse(value)] : [],
      );
      const found = rows().filter(({ at }) => at >= from && at < to);
      told(found.length);
      return found;
    },
    oneFirst: async () => start,
  }) as unknown as CommonQueryMethods;

export const longAsked = { starting_at: "2026-03-01", start_time: "2026-03-01" };
export const longNow = start + DAYS * DAY_MS;
const { starting_at, start_time } = longAsked;

export const longReports = {
  "usage of completions": (pool: CommonQueryMethods) =>
    completionsUsage(pool, "org_a", { start_time, group_by: "api_key_id" }, longNow),
  "usage of messages": (pool: CommonQueryMethods) =>
    messagesUsage(pool, "org_a", { starting_at, group_by: "api_key_id" }, longNow),
  costs: (pool: CommonQueryMethods) => costs(pool, "org_a", { start_time, group_by: "line_item" }, longNow),
  "the cost report": (pool: CommonQueryMethods) =>
    costReport(pool, "org_a", { starting_at, group_by: "description" }, longNow),
} as const;
