/** A catalogue's prices as entries of a PriceTable, and what differs between the two. Pure. */
import type { ModelPrice } from "../operator/api/price-table.ts";
import { momentMicros } from "../operator/api/moment.ts";
import type { CatalogueModel, CataloguePrice } from "./price-catalogue.ts";

/** Our names of the catalogue's prices; others (pages, hours, searches) have no place in a PriceTable. */
const names = {
  input: "input_mtok",
  output: "output_mtok",
  cacheRead: "cache_read_mtok",
  cacheWrite5m: "cache_write_mtok",
  cacheWrite1h: "cache_write_1h_mtok",
  audioInput: "input_audio_mtok",
  audioOutput: "output_audio_mtok",
  imageOutput: "output_image_mtok",
} as const;
const known = Object.keys(names) as (keyof typeof names)[];

type Rates = { -readonly [Name in keyof typeof names]?: string | undefined };
type TokenPrices = Omit<ModelPrice, "model" | "changes">;

/** Prices as an entry of a PriceTable, with their changes; `leftOut`: names of catalogue prices that are not for tokens. */
export interface EntryFound {
  readonly entry: ModelPrice;
  readonly leftOut: readonly string[];
}

/**
 * @param now Unix milliseconds: prices that were replaced by then are left out.
 * @throws Error where input or output have no price.
 */
export function entryOf(model: string, { prices, id }: CatalogueModel, now: number): EntryFound {
  const begun = prices.findLastIndex(({ from }) => from === undefined || startOf(from) <= now);
  const current = prices[Math.max(0, begun)];
  if (current === undefined) throw new Error(`${id} has no prices`);
  const coming = prices
    .slice(Math.max(0, begun) + 1)
    .flatMap(({ from, prices: then }) =>
      from === undefined ? [] : [{ from: `${from}T00:00:00Z`, ...tokenPrices(id, then) }],
    );
  const isKnown = (name: string) => (Object.values(names) as string[]).includes(name);
  return {
    entry: {
      model,
      ...tokenPrices(id, current.prices),
      ...(coming.length > 0 && { changes: coming }),
    },
    leftOut: Object.keys(current.prices).filter((name) => !isKnown(name)),
  };
}

const startOf = (day: string): number => Date.parse(`${day}T00:00:00Z`);

function tokenPrices(id: string, prices: Readonly<Record<string, CataloguePrice>>): TokenPrices {
  const at = (input: number) => ratesAt(prices, input);
  const { input, output, ...rest } = at(0);
  if (input === undefined || output === undefined) throw new Error(`${id} has no price for input and output`);
  const bounds = Object.values(prices).flatMap((price) =>
    typeof price === "number" ? [] : price.tiers.map(({ start }) => start),
  );
  const tiers = [...new Set(bounds)].toSorted((a, b) => a - b);
  return {
    input,
    output,
    ...rest,
    ...(tiers.length > 0 && {
      tiers: tiers.map((inputOver) => ({ inputOver, ...at(inputOver + 1) })),
    }),
  };
}

/** The prices of a prompt of `input` tokens. */
function ratesAt(prices: Readonly<Record<string, CataloguePrice>>, input: number): Rates {
  const rates: Rates = {};
  for (const name of known) {
    const price = prices[names[name]];
    if (price === undefined) continue;
    const dollars =
      typeof price === "number"
        ? price
        : (price.tiers.toSorted((a, b) => a.start - b.start).findLast(({ start }) => input > start)?.price ??
          price.base);
    rates[name] = decimal(dollars);
  }
  return rates;
}

/** The shortest decimal that is this number, without an exponent. */
const decimal = (value: number): string => {
  const text = String(value);
  return text.includes("e") ? value.toFixed(12).replace(/\.?0+$/, "") : text;
};

/**
 * How a table differs from the catalogue, one line each: `input is 3, the catalogue has 2.5`.
 * @param declared the table's entry, in US dollars. @param now Unix milliseconds: the prices in force then are compared.
 */
export function differences(declared: ModelPrice, found: CatalogueModel, now: number): string[] {
  const { entry } = entryOf(declared.model, found, now);
  const change = declared.changes?.findLast(({ from }) => (momentMicros(from) ?? 0n) <= BigInt(now) * 1000n);
  const holds = change ?? declared;
  const lines = compared("", effective(holds), entry);
  const bounds = new Set([...(holds.tiers ?? []), ...(entry.tiers ?? [])].map(({ inputOver }) => inputOver));
  for (const bound of [...bounds].toSorted((a, b) => a - b)) {
    const here = holds.tiers?.find(({ inputOver }) => inputOver === bound);
    const there = entry.tiers?.find(({ inputOver }) => inputOver === bound);
    const where = `above ${bound} input tokens `;
    if (here === undefined) lines.push(`${where}there is no tier, the catalogue has one`);
    else if (there === undefined) lines.push(`${where}there is a tier, the catalogue has none`);
    else lines.push(...compared(where, { ...effective(holds), ...here }, there));
  }
  return lines;
}

/** Fills in unnamed prices with those that apply instead. */
function effective(prices: Rates): Rates {
  const { input, cacheRead = input, cacheWrite5m = input, cacheWrite1h = cacheWrite5m } = prices;
  const all = { ...prices, cacheRead, cacheWrite5m, cacheWrite1h };
  return Object.fromEntries(Object.entries(all).filter(([, price]) => price !== undefined));
}

function compared(where: string, here: Rates, there: Rates): string[] {
  return known.flatMap((name) => {
    const price = there[name];
    if (price === undefined || plain(here[name]) === plain(price)) return [];
    return [`${where}${name} is ${here[name] ?? "absent"}, the catalogue has ${price}`];
  });
}

/** `2.50` is `2.5`. */
const plain = (text: string | undefined): string | undefined =>
  text?.includes(".") === true ? text.replace(/\.?0+$/, "") : text;
