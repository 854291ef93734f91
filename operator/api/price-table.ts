/** PriceTable: what tokens and tools cost (configuration.md "PriceTable" is made from it). */
import { z } from "zod";
import { AMOUNT, field, listMap, modelId, price, withRules } from "./fields.ts";
import { moment, momentMicros } from "./moment.ts";

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

/** Prices of cached tokens, which a provider may price apart. `fallback`: what an absent one costs. */
const cacheFields = (fallback: string) => ({
  cacheRead: price(`A million input tokens read from the prompt cache. Default: ${fallback}.`, {
    example: "0.30",
  }).optional(),
  cacheWrite5m: price(`A million tokens written to the cache for 5 minutes. Default: ${fallback}.`, {
    example: "3.75",
  }).optional(),
  cacheWrite1h: price(
    `A million tokens written to the cache for 1 hour. Default: ${fallback === "input" ? "cacheWrite5m" : fallback}.`,
    { example: "6" },
  ).optional(),
});

const ABOVE = "the model's own";

const mediaFields = (fallback: string) => ({
  audioInput: price(`A million tokens of audio that the model hears. ${fallback}`, {
    example: "40",
  }).optional(),
  audioOutput: price(`A million tokens of audio that the model speaks. ${fallback}`, {
    example: "80",
  }).optional(),
  imageOutput: price(`A million tokens of images that the model makes. ${fallback}`, {
    example: "30",
  }).optional(),
});

const tier = z.strictObject({
  inputOver: field(
    z.int().min(1).max(1_000_000_000),
    "Input tokens, read from a cache and written to one included, above which these prices hold for the whole request.",
    { example: 200_000 },
  ),
  input: price(`A million input tokens. Default: ${ABOVE}.`, { example: "6" }).optional(),
  output: price(`A million output tokens. Default: ${ABOVE}.`, { example: "22.50" }).optional(),
  ...cacheFields(ABOVE),
  ...mediaFields(`Default: ${ABOVE}.`),
});
export type PriceTier = z.output<typeof tier>;

/** @param most tiers: the API server has a budget for what its rules may cost at the most. */
const tiers = (most: number, description: string) =>
  field(
    withRules(listMap(tier, "inputOver", 1, most), [
      {
        cel: "self.map(t, t.inputOver).isSorted()",
        message: "the bounds must rise",
        fault: (bounds) => {
          const index = bounds.findIndex(({ inputOver }, at) => inputOver < (bounds[at - 1]?.inputOver ?? 0));
          return index < 0 ? null : [index, "inputOver"];
        },
      },
    ]),
    description,
  ).optional();

/** Names that no tier may have: providers' words for the standard tier, and for whatever the account is set to. */
const standardNames = ["auto", "default", "standard", "standard_only", "global"];

const ownPrices = [
  "input",
  "output",
  "cacheRead",
  "cacheWrite5m",
  "cacheWrite1h",
  "audioInput",
  "audioOutput",
  "imageOutput",
  "tiers",
] as const;
const hasOwn = `(${ownPrices.map((name) => `has(self.${name})`).join(" || ")})`;

const serviceTier = withRules(
  z.strictObject({
    name: field(
      withRules(
        z
          .string()
          .max(32)
          .regex(/^[a-z][a-z0-9_-]*$/, "must be lower-case letters, digits, - and _, a letter first"),
        [
          {
            cel: `!(self in [${standardNames.map((name) => `'${name}'`).join(", ")}])`,
            message: "is the standard tier, whose prices are the model's own",
            fault: (name) => (standardNames.includes(name) ? [] : null),
          },
        ],
      ),
      "The value of `service_tier`, `speed`, `inference_geo` or `reasoning.mode` that asks for it, and by which answers report it.",
      { example: "priority" },
    ),
    multiplier: field(
      withRules(
        z
          .string()
          .max(12)
          .regex(/^[0-9]{1,4}(\.[0-9]{1,6})?$/, AMOUNT),
        [
          {
            cel: "self.matches('[1-9]')",
            message: "must be above 0",
            fault: (text) => (/[1-9]/.test(text) ? null : []),
          },
        ],
      ),
      "So many times the model's prices, those of long prompts included; or else prices of its own.",
      { example: "2" },
    ).optional(),
    input: price(`A million input tokens. Default: ${ABOVE}.`, { example: "1.5" }).optional(),
    output: price(`A million output tokens. Default: ${ABOVE}.`, { example: "7.5" }).optional(),
    ...cacheFields(ABOVE),
    ...mediaFields(`Default: ${ABOVE}.`),
    tiers: tiers(
      4,
      "Prices of long prompts in this tier, as the model's `tiers`; absent prices are this tier's. Without them its prices hold for prompts of every length.",
    ),
  }),
  [
    {
      cel: `has(self.multiplier) != ${hasOwn}`,
      message: "a tier of service has either a multiplier or prices of its own",
      fault: (entry) => {
        const own = ownPrices.some((name) => entry[name] !== undefined);
        return own === (entry.multiplier !== undefined) ? [] : null;
      },
    },
  ],
);
export type PricedServiceTier = z.output<typeof serviceTier>;

const tokenPrices = {
  input: price("A million input tokens.", { example: "3" }),
  output: price("A million output tokens.", { example: "15" }),
  ...cacheFields("input"),
  ...mediaFields("Absent: the model is not offered with it."),
  tiers: tiers(
    8,
    "Prices of long prompts: the whole request is charged at the dearest tier whose bound its input exceeds; in a tool loop each call by its own input.",
  ),
  serviceTiers: field(
    listMap(serviceTier, "name", 1, 8),
    "Tiers of the provider that clients may ask for; one that is not named here never goes upstream.",
  ).optional(),
};

const change = z.strictObject({
  from: moment(
    "The moment from which these prices hold, for requests accepted then or later. With seconds and an offset.",
    { example: "2027-01-01T00:00:00Z" },
  ),
  ...tokenPrices,
});
export type PriceChange = z.output<typeof change>;

const modelPrice = z.strictObject({
  model: field(modelId(), "A ModelRoute's model id.", { example: "claude-sonnet-5-5" }),
  ...tokenPrices,
  changes: field(
    withRules(listMap(change, "from", 1, 16), [
      {
        cel: "self.map(c, timestamp(c.from)).isSorted() && self.all(c, self.exists_one(o, timestamp(o.from) == timestamp(c.from)))",
        message: "the dates must stand in order, each later than the one before",
        fault: (changes) => {
          const moments = changes.map(({ from }) => momentMicros(from) ?? 0n);
          const index = moments.findIndex((moment, at) => at > 0 && moment <= (moments[at - 1] ?? 0n));
          return index < 0 ? null : [index, "from"];
        },
      },
    ]),
    "Prices from a moment on; each one says all of them anew. Requests that were accepted before keep theirs.",
  ).optional(),
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
          .regex(/^[0-9]{1,12}(\.[0-9]{1,12})?$/, AMOUNT),
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
