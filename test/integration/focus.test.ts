/** Rule 14.5: a month's charges as FOCUS 1.2, read back and summed against the ledger. */
import { parquetReadObjects } from "hyparquet";
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { AdminWorld, type Tenant } from "./admin-world.ts";
import { plainPrices, request, usage } from "./money-world.ts";

const DAY = 86_400_000;
const november = Date.parse("2026-11-01T00:00:00Z");
const december = Date.parse("2026-12-01T00:00:00Z");

/** More than two pages of one day. */
const MANY = 600;

let world: AdminWorld;
/** Of the first organization. */
let project: string;
beforeAll(async () => {
  world = await AdminWorld.open();
  const { a, b, pool } = world;
  project = await pool.oneFirst(sql.type(z.object({ id: z.string() }))`
    select id from projects where organization_id = ${a.id} and name = 'second'
  `);
  const prices = { ...plainPrices, input: "0.333333", output: "7.1234567", cacheRead: "0.0142857" };
  const row = (tenant: Tenant, acceptedAt: number, at = 0) =>
    usageRow(
      request(tenant.id, {
        acceptedAt,
        keyId: `apikey_${at % 40}`,
        projectId: at % 2 === 0 ? project : "proj_gone",
        model: `=m,"${at % 5}"`,
        tags: at % 3 === 0 ? "" : `feature=a"b,team=t${at % 7}`,
        endpoint: at % 11 === 0 ? "batch" : "chat",
        prices,
      }),
      usage(0, {
        tokens: {
          input: 1 + at * 37,
          cacheRead: at % 4,
          cacheWrite5m: 0,
          cacheWrite1h: 0,
          output: at,
          reasoning: 0,
        },
        tools: { webSearches: at % 2, webFetches: at % 3, xSearches: at % 2, xPosts: at % 5, xProfiles: 0 },
      }),
    );
  const busy = Array.from({ length: MANY }, (_, at) => row(a, november + 5 * DAY + at * 60_000, at));
  // The first and the last millisecond of the month, and those beside them.
  const edges = [november - 1, november, december - 1, december].map((moment) => row(a, moment, 7));
  const dear = usageRow(
    request(a.id, { acceptedAt: november + 9 * DAY, prices }),
    usage(2_000_000_000, { estimated: true }),
  );
  for (const rows of [busy, edges, [dear], [row(b, november + DAY, 5)]])
    await pool.transaction((transaction) => chargeRows(transaction, rows));
});
afterAll(async () => {
  await world?.close();
});

async function download(query: string, { admin } = world.a) {
  const answer = await world.plane.server.fetch(`/v1/organization/costs/export?${query}`, {
    headers: { authorization: `Bearer ${admin}` },
  });
  return { answer, bytes: await answer.arrayBuffer() };
}

type Row = Readonly<Record<string, string>>;
async function csvRows(tenant?: Tenant): Promise<readonly Row[]> {
  const { answer, bytes } = await download("format=focus-csv&month=2026-11", tenant);
  expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "text/csv"]);
  expect(answer.headers.get("content-disposition")).toBe('attachment; filename="focus-2026-11.csv"');
  const text = new TextDecoder().decode(bytes);
  const lines = text.trimEnd().split("\n");
  const [names = [], ...rows] = lines.map((line) =>
    Array.from(line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g), ([, quoted, plain]) =>
      quoted === undefined ? (plain ?? "") : quoted.replaceAll('""', '"'),
    ),
  );
  expect(new Set(rows.map((fields) => fields.length))).toEqual(new Set([names.length]));
  return rows.map((fields) => Object.fromEntries(names.map((name, at) => [name, fields[at] ?? ""])));
}
async function parquetRows(tenant?: Tenant) {
  const { answer, bytes } = await download("format=focus-parquet&month=2026-11", tenant);
  expect([answer.status, answer.headers.get("content-type")]).toEqual([
    200,
    "application/vnd.apache.parquet",
  ]);
  return await parquetReadObjects({ file: bytes });
}

const CREDITS = "PricingCurrencyEffectiveCost";
/** An amount as text, or as a decimal that was read back as a number, in micro-credits: 100 rupiah are a credit. */
const micros = (column: string, amount: unknown): bigint =>
  BigInt(Math.round(Number(amount) * (column === CREDITS ? 1_000_000 : 10_000)));
const sum = (rows: readonly Readonly<Record<string, unknown>>[], column: string): bigint =>
  rows.reduce((total, row) => total + micros(column, row[column]), 0n);

async function ledgerSum(tenant: Tenant): Promise<bigint> {
  return await world.pool.oneFirst(sql.type(z.object({ sum: z.bigint() }))`
    select sum(cost_micros)::int8 as sum from usage where organization_id = ${tenant.id}
      and accepted_at >= '2026-11-01T00:00:00Z' and accepted_at < '2026-12-01T00:00:00Z'
  `);
}

test("both files sum to the ledger, to the micro-credit", async () => {
  const whole = await ledgerSum(world.a);
  expect(whole).toBeGreaterThan(600_000_000n);
  const [csv, parquet] = [await csvRows(), await parquetRows()];
  for (const rows of [csv, parquet]) {
    for (const column of ["BilledCost", "EffectiveCost", "ListCost", "ContractedCost", CREDITS])
      expect([column, sum(rows, column)]).toEqual([column, whole]);
  }
});

test("both files have the same rows, one for each kind of charge of a group of a day", async () => {
  const [csv, parquet] = [await csvRows(), await parquetRows()];
  const shown = (value: unknown): string => {
    if (value === null || value === undefined) return "";
    if (value instanceof Date) return `${value.toISOString().slice(0, 19)}Z`;
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  };
  expect(parquet.length).toBe(csv.length);
  const plain = (row: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(Object.entries(row).map(([name, value]) => [name, shown(value)]));
  const amounts = /Cost$/;
  for (const [at, row] of csv.entries()) {
    for (const [name, value] of Object.entries(plain(parquet[at] ?? {}))) {
      const told = row[name] ?? "none";
      if (amounts.test(name)) expect([name, micros(name, value)]).toEqual([name, micros(name, told)]);
      // What would be a formula stands behind an apostrophe in the CSV alone.
      else expect([name, value]).toEqual([name, told.replace(/^'=/, "=")]);
    }
  }
  const keys = csv.map((row) =>
    ["ChargePeriodStart", "SubAccountId", "ResourceId", "SkuId", "x_Batch", "Tags"].map((name) => row[name]),
  );
  expect(new Set(keys.map(String)).size).toBe(csv.length);
  expect(csv.length).toBeGreaterThan(MANY);
});

test("rows are what FOCUS asks of them", async () => {
  const rows = await csvRows();
  for (const row of rows)
    expect(row).toMatchObject({
      BillingAccountId: "org_a",
      BillingAccountName: "The org_a",
      BillingCurrency: "IDR",
      BillingPeriodStart: "2026-11-01T00:00:00Z",
      BillingPeriodEnd: "2026-12-01T00:00:00Z",
      ChargeCategory: "Usage",
      ChargeClass: "",
      ProviderName: "Gapura",
      ServiceCategory: "AI and Machine Learning",
      ConsumedQuantity: expect.stringMatching(/^\d+$/),
      BilledCost: expect.stringMatching(/^\d+(\.\d{1,4})?$/),
    });
  const days = rows.map((row) => row["ChargePeriodStart"]);
  expect([...new Set(days)]).toEqual(["01", "06", "10", "30"].map((day) => `2026-11-${day}T00:00:00Z`));
  const named = rows.filter((row) => row["SubAccountName"] !== "");
  expect(new Set(named.map((row) => row["SubAccountName"]))).toEqual(new Set(["second"]));
  const tags = rows.map((row) => JSON.parse(row["Tags"] ?? "") as object);
  expect(tags).toContainEqual({ feature: 'a"b', team: "t1" });
  expect(tags).toContainEqual({});
  const units = new Map(rows.map((row) => [row["SkuMeter"], row["ConsumedUnit"]]));
  expect(Object.fromEntries(units)).toMatchObject({
    "output tokens": "Tokens",
    "web search": "Searches",
    "web fetch": "Fetches",
  });
  const tokens = rows.filter((row) => row["SkuMeter"] === "output tokens");
  const used = await world.pool.oneFirst(sql.type(z.object({ sum: z.bigint() }))`
    select sum(output_tokens)::int8 as sum from usage where organization_id = 'org_a'
      and accepted_at >= '2026-11-01T00:00:00Z' and accepted_at < '2026-12-01T00:00:00Z'
  `);
  expect(tokens.reduce((total, row) => total + BigInt(row["ConsumedQuantity"] ?? 0), 0n)).toBe(used);
});

test("each organization gets its own, and names no other's projects", async () => {
  const rows = await parquetRows(world.b);
  expect(new Set(rows.map((row) => row["BillingAccountId"]))).toEqual(new Set(["org_b"]));
  expect(sum(rows, "BilledCost")).toBe(await ledgerSum(world.b));
  // A project of the other organization stands in a row of this one: its name is not told.
  await world.pool.transaction((transaction) =>
    chargeRows(transaction, [
      usageRow(request("org_b", { acceptedAt: november, projectId: project }), usage(1)),
    ]),
  );
  const again = await csvRows(world.b);
  expect(again.filter((row) => row["SubAccountName"] !== "")).toEqual([]);
});

test("a month without charges is a file without rows", async () => {
  const { bytes } = await download("format=focus-parquet&month=2024-02");
  expect(await parquetReadObjects({ file: bytes })).toEqual([]);
  const csv = await download("format=focus-csv&month=2024-02");
  expect(new TextDecoder().decode(csv.bytes)).toMatch(/^BilledCost,.*\n$/);
});

test.each([
  ["month=2026-11", "format"],
  ["format=focus-xlsx&month=2026-11", "format"],
  ["format=focus-csv", "month"],
  ["format=focus-csv&month=2026-13", "month"],
  ["format=focus-csv&month=2026-11-01", "month"],
  ["format=focus-csv&month=2026-11&month=2026-12", "month"],
])("%s is a 400 that names %s", async (query, param) => {
  const { answer, bytes } = await download(query);
  const { error } = JSON.parse(new TextDecoder().decode(bytes)) as { error: { param: string } };
  expect([answer.status, error.param]).toEqual([400, param]);
});
