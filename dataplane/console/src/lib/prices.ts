/** What a model costs as rows of a table: now, for large inputs, in each tier, and from each announced moment on. */
import type { Model } from "../api/schema.ts";

type Pricing = Model["pricing"];
/** Credits for a million tokens, as decimal text; null: the model does not offer it. */
export type Rates = Pick<
  Pricing,
  | "input"
  | "output"
  | "cache_read"
  | "cache_write_5m"
  | "cache_write_1h"
  | "audio_input"
  | "audio_output"
  | "image_output"
>;
/** The requests that a row holds for: those that meet all three conditions; null is any. */
interface PriceCase {
  /** RFC 3339: requests accepted from then on. */
  readonly from: string | null;
  readonly tier: string | null;
  /** More input tokens than this, cached ones included. */
  readonly over: number | null;
}
/** A row of prices; `multiplier`: a tier without prices of its own costs this many times the standard ones. */
export type PriceRow = PriceCase & ({ readonly rates: Rates } | { readonly multiplier: string });

export const priceRows = (pricing: Pricing): PriceRow[] => [
  ...rowsFrom(null, pricing),
  ...pricing.changes.flatMap((change) => rowsFrom(change.from, change)),
];

function rowsFrom(from: string | null, prices: Rates & Pick<Pricing, "tiers" | "service_tiers">): PriceRow[] {
  const sized = (tier: string | null, rates: Rates & Pick<Pricing, "tiers">): PriceRow[] => [
    { from, tier, over: null, rates },
    ...rates.tiers.map((large) => ({ from, tier, over: large.input_over, rates: large })),
  ];
  return [
    ...sized(null, prices),
    ...prices.service_tiers.flatMap((tier): PriceRow[] =>
      "input" in tier
        ? sized(tier.name, tier)
        : [{ from, tier: tier.name, over: null, multiplier: tier.multiplier }],
    ),
  ];
}
