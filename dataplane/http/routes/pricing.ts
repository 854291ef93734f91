/** What a model costs, in credits, for its entry in `/v1/models`. Pure. */
import { pricesAt } from "../../billing/prices/price.ts";
import type { Prices, Rates } from "../../config/schema.ts";

const ratesOf = (rates: Rates) => ({
  input: rates.input,
  output: rates.output,
  cache_read: rates.cacheRead,
  cache_write_5m: rates.cacheWrite5m,
  cache_write_1h: rates.cacheWrite1h,
  audio_input: rates.audioInput ?? null,
  audio_output: rates.audioOutput ?? null,
  image_output: rates.imageOutput ?? null,
});

const withLongPrompts = (prices: Rates & Pick<Prices, "tiers">) => ({
  ...ratesOf(prices),
  tiers: (prices.tiers ?? []).map((tier) => ({ input_over: tier.inputOver, ...ratesOf(tier) })),
});

const tokenPrices = (prices: Rates & Pick<Prices, "tiers" | "serviceTiers">) => ({
  ...withLongPrompts(prices),
  service_tiers: (prices.serviceTiers ?? []).map((tier) =>
    "input" in tier
      ? { name: tier.name, multiplier: null, ...withLongPrompts(tier) }
      : { name: tier.name, multiplier: tier.multiplier },
  ),
});

/**
 * The prices in force and the coming ones; tokens by the million, tools by the thousand.
 * @param now Unix milliseconds
 */
export function pricingOf(prices: Prices, now: number) {
  const { tools } = prices;
  const coming = (prices.changes ?? []).filter(({ from }) => from > now);
  return {
    unit: "credit",
    per: 1_000_000,
    ...tokenPrices(pricesAt(prices, now)),
    changes: coming.map((change) => ({ from: new Date(change.from).toISOString(), ...tokenPrices(change) })),
    tools: {
      web_search: tools.webSearch,
      web_fetch: tools.webFetch,
      x_search_post: tools.xSearchPost,
      x_search_profile: tools.xSearchProfile,
    },
  };
}
