import { describe, expect, test } from "vitest";
import { differences, entryOf } from "./catalogue-prices.ts";
import type { CatalogueModel } from "./price-catalogue.ts";

describe("prices of a model", () => {
  const now = Date.parse("2026-11-23T00:00:00Z");
  const found = (prices: CatalogueModel["prices"][number]["prices"]): CatalogueModel => ({
    provider: "p",
    id: "m",
    prices: [{ prices }],
  });

  test("an exponent is written out", () => {
    const { entry } = entryOf("m", found({ input_mtok: 2.5e-7, output_mtok: 1 }), now);
    expect(entry.input).toBe("0.00000025");
  });
  test("without a price for input or output there is none", () => {
    expect(() => entryOf("m", found({ input_mtok: 1 }), now)).toThrow("no price for input and output");
  });
  test("a cache without a price of its own costs what the table says by default", () => {
    const declared = { model: "m", input: "3", output: "15" };
    const catalogued = found({ input_mtok: 3, output_mtok: 15, cache_read_mtok: 0.3 });
    expect(differences(declared, catalogued, now)).toEqual(["cacheRead is 3, the catalogue has 0.3"]);
  });
  test("the change that holds is compared, and tiers that only one of them has", () => {
    const changes = [{ from: "2026-01-01T00:00:00Z", input: "1", output: "2", tiers: [{ inputOver: 10 }] }];
    const declared = { model: "m", input: "3", output: "15", changes };
    const catalogued = found({ input_mtok: { base: 1, tiers: [{ start: 20, price: 4 }] }, output_mtok: 2 });
    expect(differences(declared, catalogued, now)).toEqual([
      "above 10 input tokens there is a tier, the catalogue has none",
      "above 20 input tokens there is no tier, the catalogue has one",
    ]);
  });
});
