import { expect, test } from "vitest";
import { priceRows } from "./prices.ts";

const rates = (input: string) => ({
  input,
  output: "20",
  cache_read: "1",
  cache_write_5m: "10",
  cache_write_1h: "10",
  audio_input: null,
  audio_output: null,
  image_output: null,
});

test("prices are rows: now, large inputs, tiers with their own and with a multiplier, changes with all of these", () => {
  const large = { input_over: 200_000, ...rates("30") };
  const rows = priceRows({
    unit: "credit",
    per: 1_000_000,
    ...rates("10"),
    tiers: [large],
    service_tiers: [
      { name: "flex", multiplier: "0.5" },
      { name: "priority", multiplier: null, ...rates("15"), tiers: [{ ...large, ...rates("45") }] },
    ],
    changes: [
      {
        from: "2027-01-01T00:00:00Z",
        ...rates("8"),
        tiers: [],
        service_tiers: [{ name: "flex", multiplier: "0.4" }],
      },
    ],
    tools: { web_search: "0", web_fetch: "0", x_search_post: "0", x_search_profile: "0" },
  });
  expect(
    rows.map((row) => [
      row.from,
      row.tier,
      row.over,
      "rates" in row ? row.rates.input : `× ${row.multiplier}`,
    ]),
  ).toEqual([
    [null, null, null, "10"],
    [null, null, 200_000, "30"],
    [null, "flex", null, "× 0.5"],
    [null, "priority", null, "15"],
    [null, "priority", 200_000, "45"],
    ["2027-01-01T00:00:00Z", null, null, "8"],
    ["2027-01-01T00:00:00Z", "flex", null, "× 0.4"],
  ]);
});
