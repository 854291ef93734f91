/**
 * Prices as exact integers: decimal texts over a common power of ten, parsed once for each price of a snapshot. Pure.
 */
import type { Prices, Rates, ServiceTier } from "../../config/schema.ts";

export const tokenClasses = ["input", "cacheRead", "cacheWrite5m", "cacheWrite1h", "output"] as const;
export type TokenClass = (typeof tokenClasses)[number];
/** Parts of input and of output with prices of their own (rule 10.5). */
const mediaClasses = ["audioInput", "audioOutput", "imageOutput"] as const;
type MediaClass = (typeof mediaClasses)[number];
export type TokenRates = Readonly<Record<TokenClass | MediaClass, bigint>> & {
  /** Dearest of input and both cache writes. */
  readonly dearestInput: bigint;
};

/** Prices of one tier of service. */
export interface ScaledTier {
  readonly standard: TokenRates;
  /** In the order of their bounds. */
  readonly tiers: readonly { readonly inputOver: bigint; readonly rates: TokenRates }[];
}

/** Most multipliers of one call: a request has so many fields that ask for a tier (dialects/tiers.ts). */
const MOST_MULTIPLIERS = 4;

/** Prices as integers over one denominator: micro-credits a token or tool unit, times `scale`. */
export interface ScaledPrices {
  readonly scale: bigint;
  readonly standard: ScaledTier;
  /** By name: prices, or a multiplier times `unit`. */
  readonly serviceTiers: ReadonlyMap<string, ScaledTier | bigint>;
  /** The denominator of every multiplier. */
  readonly unit: bigint;
  /** `unit` to the power of `MOST_MULTIPLIERS`; a factor of `scale`. */
  readonly units: bigint;
  readonly webSearch: bigint;
  readonly webFetch: bigint;
  readonly xSearchPost: bigint;
  readonly xSearchProfile: bigint;
}

/** A snapshot's price objects live as long as the snapshot, so parsing them once is enough. */
const parsed = new WeakMap<Prices, ScaledPrices>();

/** Every decimal place of every price counts. */
export function scaledOf(prices: Prices): ScaledPrices {
  const known = parsed.get(prices);
  if (known !== undefined) return known;
  const { serviceTiers = [], tools } = prices;
  const priced = serviceTiers.filter((tier) => "input" in tier);
  const texts = [
    ...[prices, ...priced].flatMap(({ tiers = [], ...own }) => [own, ...tiers]).flatMap(ratesIn),
    ...Object.values(tools),
  ];
  const digits = mostDigits(texts);
  const integer = (text: string) => parseScaled(text, digits);
  const multiplierDigits = mostDigits(
    serviceTiers.flatMap((tier) => ("input" in tier ? [] : tier.multiplier)),
  );
  const unit = 10n ** BigInt(multiplierDigits);
  const units = unit ** BigInt(MOST_MULTIPLIERS);
  const tierOf = (tier: ServiceTier): ScaledTier | bigint =>
    "input" in tier ? scaledTier(tier, integer) : parseScaled(tier.multiplier, multiplierDigits);
  const toolPrice = (text: string) => 1000n * integer(text) * units;
  const scaled: ScaledPrices = {
    scale: 10n ** BigInt(digits) * units,
    unit,
    units,
    standard: scaledTier(prices, integer),
    serviceTiers: new Map(serviceTiers.map((tier) => [tier.name, tierOf(tier)])),
    webSearch: toolPrice(tools.webSearch),
    webFetch: toolPrice(tools.webFetch),
    xSearchPost: toolPrice(tools.xSearchPost),
    xSearchProfile: toolPrice(tools.xSearchProfile),
  };
  parsed.set(prices, scaled);
  return scaled;
}

const rateNames = [...tokenClasses, ...mediaClasses] as const;
const ratesIn = (rates: Rates) => rateNames.flatMap((name) => rates[name] ?? []);
const mostDigits = (texts: readonly string[]) => Math.max(0, ...texts.map((text) => fraction(text).length));

function scaledTier(
  { tiers = [], ...own }: Rates & Pick<Prices, "tiers">,
  integer: (text: string) => bigint,
): ScaledTier {
  const ratesOf = (rates: Rates): TokenRates => ({
    input: integer(rates.input),
    cacheRead: integer(rates.cacheRead),
    cacheWrite5m: integer(rates.cacheWrite5m),
    cacheWrite1h: integer(rates.cacheWrite1h),
    dearestInput: largest(...[rates.input, rates.cacheWrite5m, rates.cacheWrite1h].map(integer)),
    output: integer(rates.output),
    audioInput: integer(rates.audioInput ?? rates.input),
    audioOutput: integer(rates.audioOutput ?? rates.output),
    imageOutput: integer(rates.imageOutput ?? rates.output),
  });
  return {
    standard: ratesOf(own),
    tiers: tiers.map((tier) => ({ inputOver: BigInt(tier.inputOver), rates: ratesOf(tier) })),
  };
}

const fraction = (text: string): string => text.split(".")[1] ?? "";

/** `"1.25"` with 3 digits is `1250n`. A negative price cannot be declared (rule 6.7) and counts as nothing. */
function parseScaled(text: string, digits: number): bigint {
  if (text.startsWith("-")) return 0n;
  const [whole = "0"] = text.split(".");
  return BigInt(whole + fraction(text).padEnd(digits, "0"));
}

/** 0n without values. */
export const largest = (...values: readonly bigint[]): bigint =>
  values.reduce((most, value) => (value > most ? value : most), 0n);
