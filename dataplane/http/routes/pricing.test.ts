import { expect, test } from "vitest";
import { sampleRoute } from "../../../test/fakes/sample-snapshot.ts";
import { pricingOf } from "./pricing.ts";

const now = Date.parse("2027-01-01T00:00:00Z");
const { prices } = sampleRoute("m");
const rates = { input: "1", output: "2", cacheRead: "3", cacheWrite5m: "4", cacheWrite1h: "5" };
const shown = {
  input: "1",
  output: "2",
  cache_read: "3",
  cache_write_5m: "4",
  cache_write_1h: "5",
  audio_input: null,
  audio_output: null,
  image_output: null,
};

test("a price that was replaced is not shown, one that comes is shown with its moment", () => {
  const changes = [
    { ...rates, from: now - 1, input: "7" },
    { ...rates, from: now },
    { ...rates, from: now + 1, output: "9", tiers: [{ ...rates, inputOver: 10 }] },
  ];
  const rest = { tiers: [], service_tiers: [] };
  expect(pricingOf({ ...prices, changes }, now)).toEqual({
    unit: "credit",
    per: 1_000_000,
    ...shown,
    ...rest,
    changes: [
      {
        from: "2027-01-01T00:00:00.001Z",
        ...shown,
        ...rest,
        output: "9",
        tiers: [{ input_over: 10, ...shown }],
      },
    ],
    tools: {
      web_search: prices.tools.webSearch,
      web_fetch: prices.tools.webFetch,
      x_search_post: prices.tools.xSearchPost,
      x_search_profile: prices.tools.xSearchProfile,
    },
  });
});

test("long prompts stand with their bounds", () => {
  const tiers = [{ ...rates, inputOver: 200_000 }];
  expect(pricingOf({ ...prices, tiers }, now).tiers).toEqual([{ input_over: 200_000, ...shown }]);
});

test("tiers of service stand with their multipliers, or with prices of their own", () => {
  const serviceTiers = [
    { name: "priority", multiplier: "2" },
    { ...rates, name: "flex", audioInput: "8", tiers: [{ ...rates, inputOver: 10 }] },
  ];
  expect(pricingOf({ ...prices, serviceTiers }, now).service_tiers).toEqual([
    { name: "priority", multiplier: "2" },
    {
      name: "flex",
      multiplier: null,
      ...shown,
      audio_input: "8",
      tiers: [{ input_over: 10, ...shown }],
    },
  ]);
});
