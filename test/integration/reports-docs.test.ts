/** The worked example of docs/billing.md, played through the ledger: what the page says is what the product answers. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { creditsText } from "../../dataplane/billing/credits.ts";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import type { FinalUsage } from "../../dataplane/billing/meter.ts";
import { estimateMicros } from "../../dataplane/billing/prices/price.ts";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { costReport } from "../../dataplane/reports/cost-report.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { sampleRoute } from "../fakes/sample-snapshot.ts";
import { makeOrganization, request } from "./money-world.ts";
import { written } from "../fakes/written-json.ts";
import { freshDatabase } from "./stores.ts";

const page = readFileSync(join(import.meta.dirname, "../../docs/billing.md"), "utf8");
const { prices } = sampleRoute("demo");

/** The cells of the row of the example's table that begins so. */
function row(name: string): readonly string[] {
  const line = page.split("\n").find((text) => text.startsWith(`| ${name} |`)) ?? "";
  return line
    .split("|")
    .slice(2, -1)
    .map((cell) => cell.trim());
}

const units = (name: string) => Number(row(name)[0]);
const used: FinalUsage = {
  tokens: {
    input: units("uncached input tokens"),
    cacheRead: units("cache read input tokens"),
    cacheWrite5m: units("5-minute cache write tokens"),
    cacheWrite1h: 0,
    output: units("output tokens"),
    reasoning: 0,
  },
  tools: { webSearches: units("web searches"), webFetches: 0, xSearches: 0, xPosts: 0, xProfiles: 0 },
  estimated: false,
  status: "ok",
  iterations: 3,
  upstream: "primary",
};
const accepted = request("org_docs", {
  model: "demo",
  prices,
  acceptedAt: Date.parse("2026-03-01T09:00:00Z"),
});

test("the example's hold and charge", () => {
  const hold = estimateMicros(prices, { inputTokens: 60_000 / 3, maxOutputTokens: 2000, n: 1 });
  expect(page).toContain(`= **${creditsText(hold)}** credits`);
  const { cost } = usageRow(accepted, used);
  expect(
    [
      cost.parts.input,
      cost.parts.cacheRead,
      cost.parts.cacheWrite5m,
      cost.parts.output,
      cost.parts.webSearch,
      cost.total,
    ].map(String),
  ).toEqual(
    [
      "uncached input tokens",
      "cache read input tokens",
      "5-minute cache write tokens",
      "output tokens",
      "web searches",
      "sum",
    ].map((name) => row(name).at(-1)),
  );
  const exactly = [
    used.tokens.input * 96,
    used.tokens.cacheRead * 9.6,
    used.tokens.cacheWrite5m * 120,
    used.tokens.output * 480,
    used.tools.webSearches * 320_000,
  ];
  expect(Number(row("sum")[1])).toBeCloseTo(
    exactly.reduce((sum, part) => sum + part, 0),
    3,
  );
  expect(page).toContain(
    `The charge is **${creditsText(cost.total)}** credits, ${creditsText(cost.total * 100n)} rupiah`,
  );
});

test("the example's reports", async () => {
  await using database = await freshDatabase();
  const pool = await openPostgres(database.url, { onError: () => {} });
  try {
    await makeOrganization(pool, "org_docs", 10_000_000n);
    await pool.transaction((transaction) => chargeRows(transaction, [usageRow(accepted, used)]));
    const [whole = "", line = ""] = Array.from(page.matchAll(/```json\n(.*?)```/gs), ([, text]) => text);
    const range = { starting_at: "2026-03-01", ending_at: "2026-03-02" };
    const now = Date.parse("2026-03-05T00:00:00Z");
    const report = async (query: object) =>
      JSON.parse(await written(await costReport(pool, "org_docs", { ...range, ...query }, now)));
    expect(await report({})).toEqual(JSON.parse(whole));
    const { results } = await report({ group_by: "description" });
    expect(results).toContainEqual(JSON.parse(line));
    expect(results).toHaveLength(5);
  } finally {
    await pool.end();
  }
});
