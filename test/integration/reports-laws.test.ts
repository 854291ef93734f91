/**
 * Laws of the four reports, over random traffic that goes through the real ledger (rules 5.9–5.19). What a report
 * must say is computed here from the rows that went in and from the `usage` table, never from `usage_hourly`.
 */
import fc from "fast-check";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { usageRow, type UsageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import type { Prices } from "../../dataplane/config/schema.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { completionsUsage } from "../../dataplane/reports/completions-usage.ts";
import { costReport } from "../../dataplane/reports/cost-report.ts";
import { costs } from "../../dataplane/reports/costs.ts";
import { messagesUsage } from "../../dataplane/reports/messages-usage.ts";
import type { ReportQuery } from "../../dataplane/reports/parameters.ts";
import { makeOrganization, plainPrices, request } from "./money-world.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

let database: TestDatabase;
let pool: DatabasePool;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {} });
});
afterAll(async () => {
  await pool?.end();
  await database?.drop();
});

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const start = Date.parse("2026-03-28T00:00:00Z");
const days = 4;
const now = start + days * DAY;
const whole: ReportQuery = { starting_at: "2026-03-28", start_time: "2026-03-28", limit: "1000" };

/** Prices whose parts seldom come out even, so that there are residues to put somewhere. */
const oddPrices: Prices = {
  ...plainPrices,
  input: "0.333333",
  output: "7.1234567",
  cacheRead: "0.0142857",
  cacheWrite5m: "0.4166666",
  cacheWrite1h: "0.6666666",
  tools: { webSearch: "0.0007", webFetch: "0", xSearchPost: "0.0333333", xSearchProfile: "320" },
};

const serviceTiers = [
  { name: "priority", multiplier: "2" },
  { name: "fast", multiplier: "6.5" },
  { name: "us", multiplier: "1.1" },
];

const count = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 50 }), fc.integer({ min: 1, max: 200_000 }));
const few = fc.integer({ min: 0, max: 3 });
const traffic = fc.array(
  fc.record({
    // Half of it around midnights and full hours.
    at: fc.oneof(
      fc.integer({ min: 0, max: days * DAY - 1 }),
      fc
        .tuple(fc.integer({ min: 1, max: days * 24 - 1 }), fc.integer({ min: -1, max: 1 }))
        .map(([hour, ms]) => hour * HOUR + ms),
    ),
    keyId: fc.constantFrom("apikey_1", "apikey_2", "apikey_3"),
    projectId: fc.constantFrom("proj_1", "proj_2"),
    model: fc.constantFrom<string>("m,1", "m 2", "m'3"),
    contextTokens: fc.constantFrom(8000, 200_000),
    batch: fc.boolean(),
    prices: fc.constantFrom(plainPrices, oddPrices, { ...oddPrices, serviceTiers }),
    tiers: fc.constantFrom([], ["priority"], ["fast", "us"]),
    status: fc.constantFrom("ok", "error", "cancelled"),
    provisional: fc.constantFrom(false, false, false, true),
    tokens: fc.record({
      input: count,
      cacheRead: count,
      cacheWrite5m: count,
      cacheWrite1h: count,
      output: count,
      reasoning: fc.constant(0),
    }),
    tools: fc.record({ webSearches: few, webFetches: few, xSearches: few, xPosts: few, xProfiles: few }),
  }),
  { minLength: 1, maxLength: 120 },
);

let organizations = 0;

/** Sends the traffic of one organization through the ledger; returns the rows as they were charged in the end. */
async function play(items: typeof traffic extends fc.Arbitrary<infer Items> ? Items : never) {
  const organizationId = `org_laws_${(organizations += 1)}`;
  await makeOrganization(pool, organizationId, 1_000_000_000_000n);
  const provisional: UsageRow[] = [];
  const final: UsageRow[] = [];
  for (const { at, batch, tokens: counted, tiers, tools, status, provisional: early, ...of } of items) {
    const tokens = { ...counted, tiers: { charged: tiers, doubtful: [] } };
    const asked = request(organizationId, {
      ...of,
      acceptedAt: start + at,
      endpoint: batch ? "batch" : "chat",
      batchId: batch ? "msgbatch_1" : null,
    });
    const used = { tokens, tools, status, estimated: false, iterations: 1, upstream: "u" };
    // A sweeper charged half of it before the owner came back, and before its upstream told a tier.
    if (early) {
      const half = { ...used, tokens: { ...counted, input: Math.floor(tokens.input / 2) } };
      provisional.push(usageRow(asked, half, true));
    }
    final.push(usageRow(asked, used));
  }
  await pool.transaction((transaction) => chargeRows(transaction, provisional));
  for (let from = 0; from < final.length; from += 40) {
    await pool.transaction((transaction) => chargeRows(transaction, final.slice(from, from + 40)));
  }
  return { organizationId, rows: final };
}

interface Bucket {
  readonly starting_at?: string;
  readonly start_time?: number;
  readonly results: readonly Record<string, unknown>[];
}
interface Report {
  readonly data: readonly Bucket[];
  readonly results?: readonly Record<string, unknown>[];
  readonly has_more: boolean;
  readonly next_page: number | null;
}
/** As a client reads it; the start stands under the name that this report knows. */
const read = async (
  report: typeof messagesUsage | typeof completionsUsage | typeof costReport | typeof costs,
  organizationId: string,
  query: ReportQuery,
) => {
  const unknown = report === messagesUsage || report === costReport ? "start_time" : "starting_at";
  const known = Object.fromEntries(Object.entries(query).filter(([name]) => name !== unknown));
  return JSON.parse(JSON.stringify(await report(pool, organizationId, known, now))) as Report;
};

/** Every number of a result under its path, added up over results; whatever groups they have. */
function total(results: readonly Record<string, unknown>[]): Record<string, number> {
  const sums: Record<string, number> = {};
  const add = (path: string, value: unknown) => {
    if (typeof value === "number") sums[path] = (sums[path] ?? 0) + value;
    else if (typeof value === "object" && value !== null) {
      for (const [name, inner] of Object.entries(value)) add(`${path}.${name}`, inner);
    }
  };
  for (const result of results) {
    for (const [name, value] of Object.entries(result)) if (name !== "context_window") add(name, value);
  }
  return sums;
}
const totals = ({ data }: Report) => data.map(({ results }) => total(results));
const grandTotal = ({ data }: Report) => total(data.flatMap(({ results }) => results));
/** What an answer without traffic leaves out is zero. */
const plus = (parts: readonly Record<string, number>[]) => total(parts);
const withoutZeros = (sums: Record<string, number>) =>
  Object.fromEntries(Object.entries(sums).filter(([, value]) => value !== 0));

/** Ten-thousandths of a rupiah: the unit that a micro-credit is. */
const exact = (amount: unknown): bigint => {
  const [units = "", fraction = ""] = String(amount).split(".");
  return BigInt(units + fraction.padEnd(4, "0"));
};
const exactCredits = (credits: unknown): bigint => {
  const [units = "", fraction = ""] = String(credits).split(".");
  return BigInt(units + fraction.padEnd(6, "0"));
};
const sumOf = (
  results: readonly Record<string, unknown>[],
  of: (result: Record<string, unknown>) => bigint,
) => results.reduce((sum, result) => sum + of(result), 0n);
const rupiah = (result: Record<string, unknown>) =>
  exact("currency" in result ? result["amount"] : (result["amount"] as { value: number }).value);
const credits = (result: Record<string, unknown>) => exactCredits(result["credits"]);

const messagesGroups = ["api_key_id", "workspace_id", "model", "service_tier", "context_window"];
const completionsGroups = ["project_id", "api_key_id", "model", "batch"];
const runs = { numRuns: 12 };

describe("usage", () => {
  test("any grouping sums to the ungrouped total, bucket by bucket, and no group stands twice", async () => {
    await fc.assert(
      fc.asyncProperty(
        traffic,
        fc.subarray(messagesGroups),
        fc.subarray(completionsGroups),
        async (items, one, two) => {
          const { organizationId } = await play(items);
          for (const [report, groups, known] of [
            [messagesUsage, one, messagesGroups],
            [completionsUsage, two, completionsGroups],
          ] as const) {
            const plain = await read(report, organizationId, whole);
            const grouped = await read(report, organizationId, {
              ...whole,
              group_by: groups.length === 0 ? undefined : groups,
            });
            expect(totals(grouped)).toEqual(totals(plain));
            expect(plain.data.every(({ results }) => results.length <= 1)).toBe(true);
            for (const { results } of grouped.data) {
              const names = results.map((result) => JSON.stringify(groups.map((group) => result[group])));
              expect(new Set(names).size).toBe(results.length);
              for (const result of results) {
                for (const group of known) expect(result[group] === null).toBe(!groups.includes(group));
              }
            }
          }
        },
      ),
      runs,
    );
  });

  test("hours sum to days, buckets are contiguous, and pages put together are the whole list", async () => {
    await fc.assert(
      fc.asyncProperty(traffic, fc.integer({ min: 1, max: 40 }), async (items, limit) => {
        const { organizationId } = await play(items);
        for (const report of [messagesUsage, completionsUsage]) {
          const daily = await read(report, organizationId, whole);
          const hourly = await read(report, organizationId, { ...whole, bucket_width: "1h" });
          expect(hourly.data).toHaveLength(days * 24);
          for (const [index, day] of totals(daily).entries()) {
            expect(withoutZeros(plus(totals(hourly).slice(index * 24, index * 24 + 24)))).toEqual(
              withoutZeros(day),
            );
          }
          const starts = hourly.data.map(
            (bucket) => bucket.start_time ?? Date.parse(bucket.starting_at ?? "") / 1000,
          );
          expect(starts).toEqual(starts.map((_, index) => (start + index * HOUR) / 1000));
          const paged: Bucket[] = [];
          for (let page: number | null = 1; page !== null;) {
            const shown = await read(report, organizationId, {
              ...whole,
              bucket_width: "1h",
              group_by: "model",
              limit: String(limit),
              page: String(page),
            });
            paged.push(...shown.data);
            expect(shown.has_more).toBe(shown.next_page !== null);
            page = shown.next_page;
          }
          expect(paged).toEqual(
            (await read(report, organizationId, { ...whole, bucket_width: "1h", group_by: "model" })).data,
          );
        }
      }),
      { numRuns: 6 },
    );
  });

  test("filters partition: what each value keeps adds up to the whole", async () => {
    await fc.assert(
      fc.asyncProperty(traffic, async (items) => {
        const { organizationId } = await play(
          items.map((item) => ({ ...item, model: item.model.replace(",", "") })),
        );
        const parts = async (
          report: typeof messagesUsage | typeof completionsUsage,
          name: string,
          values: string[],
        ) =>
          withoutZeros(
            plus(
              await Promise.all(
                [...values, "unknown", "\0", "' or true --"].map(async (value) =>
                  grandTotal(await read(report, organizationId, { ...whole, [name]: value })),
                ),
              ),
            ),
          );
        const all = {
          models: ["m1", "m 2", "m'3"],
          keys: ["apikey_1", "apikey_2", "apikey_3"],
          projects: ["proj_1", "proj_2"],
        };
        const messages = withoutZeros(grandTotal(await read(messagesUsage, organizationId, whole)));
        const completions = withoutZeros(grandTotal(await read(completionsUsage, organizationId, whole)));
        expect(await parts(messagesUsage, "models[]", all.models)).toEqual(messages);
        expect(await parts(messagesUsage, "api_key_ids", all.keys)).toEqual(messages);
        expect(await parts(messagesUsage, "workspace_ids[]", all.projects)).toEqual(messages);
        expect(await parts(completionsUsage, "models", all.models)).toEqual(completions);
        const [live, batched] = await Promise.all(
          ["false", "true"].map(async (batch) =>
            grandTotal(await read(completionsUsage, organizationId, { ...whole, batch })),
          ),
        );
        expect(withoutZeros(plus([live ?? {}, batched ?? {}]))).toEqual(completions);
        const byModel = await Promise.all(
          all.models.map((models) => read(costReport, organizationId, { ...whole, models })),
        );
        const charged = await read(costReport, organizationId, whole);
        expect(
          sumOf(
            byModel.flatMap(({ results }) => results ?? []),
            rupiah,
          ),
        ).toBe(sumOf(charged.results ?? [], rupiah));
        for (const [name, values] of [
          ["api_key_ids", all.keys],
          ["project_ids[]", all.projects],
        ] as const) {
          const kept = await Promise.all(
            [...values, "unknown"].map((value) =>
              read(costReport, organizationId, { ...whole, [name]: value }),
            ),
          );
          const rows = kept.flatMap(({ results }) => results ?? []);
          expect(sumOf(rows, rupiah), name).toBe(sumOf(charged.results ?? [], rupiah));
        }
      }),
      { numRuns: 5 },
    );
  });

  test("what it counts is what went in, by hour, model and key", async () => {
    await fc.assert(
      fc.asyncProperty(traffic, async (items) => {
        const { organizationId, rows } = await play(items);
        const { data } = await read(messagesUsage, organizationId, {
          ...whole,
          bucket_width: "1h",
          group_by: "model,api_key_id",
        });
        const expected = Map.groupBy(rows, (row) =>
          JSON.stringify([Math.floor(row.acceptedAt / HOUR) * HOUR, row.model, row.keyId]),
        );
        const shown = data.flatMap(({ starting_at = "", results }) =>
          results.map(
            (result) =>
              [
                JSON.stringify([Date.parse(starting_at), result["model"], result["api_key_id"]]),
                result,
              ] as const,
          ),
        );
        expect(shown.map(([name]) => name).toSorted()).toEqual([...expected.keys()].toSorted());
        for (const [name, result] of shown) {
          const sum = (of: (row: UsageRow) => number) =>
            (expected.get(name) ?? []).reduce((all, row) => all + of(row), 0);
          expect(result).toMatchObject({
            uncached_input_tokens: sum((row) => row.tokens.input),
            cache_read_input_tokens: sum((row) => row.tokens.cacheRead),
            cache_creation: {
              ephemeral_5m_input_tokens: sum((row) => row.tokens.cacheWrite5m),
              ephemeral_1h_input_tokens: sum((row) => row.tokens.cacheWrite1h),
            },
            output_tokens: sum((row) => row.tokens.output),
            server_tool_use: {
              web_search_requests: sum((row) => row.tools.webSearches + row.tools.xSearches),
            },
          });
        }
        const byTier = await read(messagesUsage, organizationId, {
          ...whole,
          group_by: "service_tier,context_window",
        });
        const output: Record<string, number> = {};
        for (const { serviceTier, contextTokens, tokens } of rows) {
          const name = `${serviceTier} ${contextTokens}`;
          output[name] = (output[name] ?? 0) + tokens.output;
        }
        const told: Record<string, number> = {};
        for (const { service_tier, context_window, output_tokens } of byTier.data.flatMap(
          (day) => day.results,
        )) {
          const name = `${String(service_tier)} ${String(context_window)}`;
          told[name] = (told[name] ?? 0) + Number(output_tokens);
        }
        expect(told).toEqual(output);
        const [completions] = (
          await read(completionsUsage, organizationId, { ...whole, end_time: "2026-03-29" })
        ).data;
        const first = rows.filter(({ acceptedAt }) => acceptedAt < start + DAY);
        const sum = (of: (row: UsageRow) => number) => first.reduce((all, row) => all + of(row), 0);
        expect(completions?.results ?? []).toMatchObject(
          first.length === 0
            ? []
            : [
                {
                  input_tokens: sum(
                    ({ tokens }) =>
                      tokens.input + tokens.cacheRead + tokens.cacheWrite5m + tokens.cacheWrite1h,
                  ),
                  input_cached_tokens: sum(({ tokens }) => tokens.cacheRead),
                  output_tokens: sum(({ tokens }) => tokens.output),
                  num_model_requests: first.length,
                },
              ],
        );
      }),
      runs,
    );
  });
});

test("a request whose calls were charged by several tiers is found where all of them are asked for", async () => {
  const organizationId = "org_tiers";
  await makeOrganization(pool, organizationId, 1_000_000_000n);
  const none = { input: 0, cacheRead: 0, cacheWrite5m: 0, cacheWrite1h: 0, output: 0, reasoning: 0 };
  const tools = { webSearches: 0, webFetches: 0, xSearches: 0, xPosts: 0, xProfiles: 0 };
  const call = (output: number, ...charged: string[]) => ({
    ...none,
    output,
    tiers: { charged, doubtful: [] },
  });
  const requests = [
    [call(1, "priority")],
    [call(10)],
    [call(100, "priority"), call(1_000)],
    [call(10_000), call(100_000, "fast", "us")],
  ];
  const rows = requests.map((calls) => {
    const tokens = { ...none, output: calls.reduce((sum, { output }) => sum + output, 0) };
    const used = { status: "ok", estimated: false, iterations: calls.length, upstream: "u" } as const;
    const asked = request(organizationId, { acceptedAt: start, prices: { ...plainPrices, serviceTiers } });
    return usageRow(asked, { ...used, tokens, tools, calls });
  });
  expect(rows.map(({ serviceTier }) => serviceTier)).toEqual([
    "priority",
    "standard",
    "priority,standard",
    "standard,fast+us",
  ]);
  await pool.transaction((transaction) => chargeRows(transaction, rows));
  for (const [asked, output] of [
    ["priority", 1],
    ["standard", 10],
    ["priority,standard", 1_111],
    ["fast+us", undefined],
    ["fast+us,priority,standard", 111_111],
  ] as const) {
    const found = await read(messagesUsage, organizationId, { ...whole, service_tiers: asked });
    expect([asked, grandTotal(found)["output_tokens"]]).toEqual([asked, output]);
  }
});

describe("costs", () => {
  test("rule 5.15: reports = usage rows = what the ledger charged, in every grouping, to the last unit", async () => {
    await fc.assert(
      fc.asyncProperty(traffic, async (items) => {
        const { organizationId } = await play(items);
        const charged = await pool.one(
          sql.type(z.object({ rows: z.bigint(), ledger: z.bigint() }))`
            select (select coalesce(sum(cost_micros), 0)::int8 from usage where organization_id = ${organizationId}) as rows,
              (select sum(amount_micros)::int8 from grants where organization_id = ${organizationId})
                - (select balance_micros from accounts where organization_id = ${organizationId}) as ledger
          `,
        );
        expect(charged.rows).toBe(charged.ledger);
        for (const [report, group] of [
          [costReport, "description"],
          [costs, "line_item"],
        ] as const) {
          for (const query of [whole, { ...whole, "group_by[]": group }]) {
            const { results = [], data } = await read(report, organizationId, query);
            const daily = data.flatMap((bucket) => bucket.results);
            expect(sumOf(results, rupiah)).toBe(charged.ledger);
            expect(sumOf(results, credits)).toBe(charged.ledger);
            expect(sumOf(daily, rupiah)).toBe(charged.ledger);
            expect(sumOf(daily, credits)).toBe(charged.ledger);
            expect(data).toHaveLength(days);
          }
          expect((await read(report, organizationId, whole)).results).toHaveLength(1);
        }
      }),
      runs,
    );
  });

  test("rule 5.16: each line is the charges of one model for one thing, described, and stands once", async () => {
    await fc.assert(
      fc.asyncProperty(traffic, async (items) => {
        const { organizationId, rows } = await play(items);
        const { results = [] } = await read(costReport, organizationId, {
          ...whole,
          group_by: "description",
        });
        const expected = new Map<string, bigint>();
        const add = (row: UsageRow, type: string, token: string | null, micros: bigint, used: number) => {
          if (used === 0 && micros === 0n) return;
          const name = JSON.stringify([row.model, row.serviceTier, type, token]);
          expected.set(name, (expected.get(name) ?? 0n) + micros);
        };
        for (const row of rows) {
          const { tokens, tools, cost } = row;
          add(row, "tokens", "uncached_input_tokens", cost.parts.input, tokens.input);
          add(row, "tokens", "cache_read_input_tokens", cost.parts.cacheRead, tokens.cacheRead);
          add(
            row,
            "tokens",
            "cache_creation.ephemeral_5m_input_tokens",
            cost.parts.cacheWrite5m,
            tokens.cacheWrite5m,
          );
          add(
            row,
            "tokens",
            "cache_creation.ephemeral_1h_input_tokens",
            cost.parts.cacheWrite1h,
            tokens.cacheWrite1h,
          );
          add(row, "tokens", "output_tokens", cost.parts.output, tokens.output);
          add(row, "web_search", null, cost.parts.webSearch, tools.webSearches);
          add(row, "web_fetch", null, cost.parts.webFetch, tools.webFetches);
          add(row, "x_search", null, cost.parts.xSearch, tools.xSearches);
        }
        const shown = results.map(
          (result) =>
            [
              JSON.stringify([
                result["model"],
                result["service_tier"],
                result["cost_type"],
                result["token_type"],
              ]),
              rupiah(result),
            ] as const,
        );
        expect(new Map(shown)).toEqual(expected);
        expect(shown).toHaveLength(expected.size);
        expect(new Set(results.map(({ description }) => description)).size).toBe(results.length);
        expect(results.every(({ description }) => description !== "")).toBe(true);
        const lines = (await read(costs, organizationId, { ...whole, group_by: "line_item" })).results ?? [];
        expect(new Set(lines.map(({ line_item: line }) => line)).size).toBe(results.length);
      }),
      runs,
    );
  });
});
