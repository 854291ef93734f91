/** PriceTable: what tokens and tools cost (configuration.md "PriceTable" is made from it). */
import { z } from "zod";
import { field, listMap, modelId, price, withRules } from "./fields.ts";

export const priceDefaults = {
  creditsPerUSD: "32",
  /** Per thousand, by unit (service.md "Prices and billing rules"). */
  tools: {
    USD: { webSearch: "10", webFetch: "0", xSearchPost: "5", xSearchProfile: "10" },
    Credit: { webSearch: "320", webFetch: "0", xSearchPost: "160", xSearchProfile: "320" },
  },
} as const;

const tool = (name: keyof typeof priceDefaults.tools.USD, description: string) =>
  price(`${description} With unit Credit the default is ${priceDefaults.tools.Credit[name]}.`, {
    default: priceDefaults.tools.USD[name],
  }).optional();

const modelPrice = z.strictObject({
  model: field(modelId(), "A ModelRoute's model id.", { example: "claude-sonnet-5-5" }),
  input: price("A million input tokens.", { example: "3" }),
  output: price("A million output tokens.", { example: "15" }),
  cacheRead: price("A million input tokens read from the prompt cache. Default: input.", {
    example: "0.30",
  }).optional(),
  cacheWrite5m: price("A million tokens written to the cache for 5 minutes. Default: input.", {
    example: "3.75",
  }).optional(),
  cacheWrite1h: price("A million tokens written to the cache for 1 hour. Default: cacheWrite5m.", {
    example: "6",
  }).optional(),
});
export type ModelPrice = z.output<typeof modelPrice>;

export const priceTableSpec = withRules(
  z.strictObject({
    unit: field(z.enum(["USD", "Credit"]), "The unit of every price in this table."),
    creditsPerUSD: field(
      withRules(
        z
          .string()
          .max(25)
          .regex(/^[0-9]{1,12}(\.[0-9]{1,12})?$/),
        [
          {
            cel: "self.matches('[1-9]')",
            message: "must be above 0",
            fault: (text) => (/[1-9]/.test(text) ? null : []),
          },
        ],
      ),
      "Credits for one USD; only with unit USD.",
      { default: priceDefaults.creditsPerUSD },
    ).optional(),
    models: field(listMap(modelPrice, "model", 0, 1000), "Prices of models, per million tokens.").optional(),
    tools: field(
      z.strictObject({
        webSearch: tool("webSearch", "A thousand web searches."),
        webFetch: tool("webFetch", "A thousand fetched pages."),
        xSearchPost: tool("xSearchPost", "A thousand fetched posts."),
        xSearchProfile: tool("xSearchProfile", "A thousand fetched profiles."),
      }),
      "Prices of tools, per thousand.",
    ).optional(),
  }),
  [
    {
      cel: "self.unit == 'USD' || !has(self.creditsPerUSD)",
      message: "creditsPerUSD stands only with unit USD",
      fieldPath: ".creditsPerUSD",
      fault: (spec) =>
        spec.unit === "Credit" && spec.creditsPerUSD !== undefined ? ["creditsPerUSD"] : null,
    },
  ],
);
export type PriceTableSpec = z.output<typeof priceTableSpec>;
