/**
 * What a request costs. Pure: prices are decimal strings, parsed to exact integers over a common power of ten;
 * a request's cost is summed exactly and rounded once, half up, to a micro-credit (service.md "Prices and billing rules").
 *
 * A price of `p` credits for a million tokens is `p` micro-credits a token; a price of `p` credits for a thousand
 * tool units is `1000 p` micro-credits a unit.
 */
import type { Prices, Rates } from "../config/schema.ts";
import type { Micros, TokenUsage, ToolUsage } from "./meter.ts";

/** What is charged for: the five token types of a cost report, and the three server tools by name. */
export const chargeClasses = [
  "input",
  "cacheRead",
  "cacheWrite5m",
  "cacheWrite1h",
  "output",
  "webSearch",
  "webFetch",
  "xSearch",
] as const;
export type ChargeClass = (typeof chargeClasses)[number];

/** One request's charge. The parts sum to the total exactly, so every grouping in a report does (rule 5.15). */
export interface Cost {
  readonly total: Micros;
  readonly parts: Readonly<Record<ChargeClass, Micros>>;
}

/** What one request may use at most, as far as it is known before it runs. */
export interface EstimatedWork {
  /** Input tokens: text bytes ÷ 3, plus fixed sizes for images and documents (rule 1.8). */
  readonly inputTokens: number;
  /** The clamped output limit of one choice. */
  readonly maxOutputTokens: number;
  /** Number of choices (Chat's `n`). */
  readonly n: number;
}

/**
 * More than any model can read or write in one request. A counter beyond it is an upstream's nonsense, and must
 * not be able to overflow the 64-bit columns that sums are kept in.
 */
export const MAX_TOKENS_PER_REQUEST = 1_000_000_000;

const tokenClasses = ["input", "cacheRead", "cacheWrite5m", "cacheWrite1h", "output"] as const;
type TokenClass = (typeof tokenClasses)[number];
type TokenRates = Readonly<Record<TokenClass, bigint>>;

/** Prices as integers over one denominator: micro-credits a token or tool unit, times `scale`. */
interface ScaledPrices {
  readonly scale: bigint;
  readonly standard: TokenRates;
  /** In the order of their bounds. */
  readonly tiers: readonly { readonly inputOver: bigint; readonly rates: TokenRates }[];
  readonly webSearch: bigint;
  readonly webFetch: bigint;
  readonly xSearchPost: bigint;
  readonly xSearchProfile: bigint;
}

/** A snapshot's price objects live as long as the snapshot, so parsing them once is enough. */
const parsed = new WeakMap<Prices, ScaledPrices>();
/** The prices that hold from each change on. */
const changed = new WeakMap<object, Prices>();

/**
 * The prices of a request that was accepted at this moment (rule 10.4); they go with it to its end.
 * @param acceptedAt Unix milliseconds
 */
export function pricesAt(prices: Prices, acceptedAt: number): Prices {
  const change = prices.changes?.findLast(({ from }) => from <= acceptedAt);
  if (change === undefined) return prices;
  const known = changed.get(change);
  if (known !== undefined) return known;
  const { from: _from, ...rates } = change;
  const held: Prices = { ...rates, source: prices.source, tools: prices.tools };
  changed.set(change, held);
  return held;
}

/**
 * Exact cost of the work done: one rounding, half up; the residue of the parts stands in the dearest of them.
 * @param calls the tokens of each upstream call, where there was more than one: each is charged by its own input
 * (rule 10.3). They sum to `tokens`.
 */
export function costMicros(
  prices: Prices,
  tokens: TokenUsage,
  tools: ToolUsage,
  calls?: readonly TokenUsage[],
): Cost {
  const scaled = scaledOf(prices);
  // Exact at first, times the scale; rounded down below.
  const parts: Record<ChargeClass, bigint> = {
    ...callParts(scaled, tokens, calls),
    webSearch: count(tools.webSearches) * scaled.webSearch,
    webFetch: count(tools.webFetches) * scaled.webFetch,
    xSearch: count(tools.xPosts) * scaled.xSearchPost + count(tools.xProfiles) * scaled.xSearchProfile,
  };
  let sum = 0n;
  let floors = 0n;
  let dearest: ChargeClass = "input";
  let most = 0n;
  for (const charge of chargeClasses) {
    const part = parts[charge];
    // Most classes of most requests.
    if (part === 0n) continue;
    sum += part;
    parts[charge] = part / scaled.scale;
    floors += parts[charge];
    if (part <= most) continue;
    most = part;
    dearest = charge;
  }
  const total = (2n * sum + scaled.scale) / (2n * scaled.scale);
  // Between 0 and the number of classes: each part was rounded down, the total was not rounded below their sum.
  parts[dearest] += total - floors;
  return { total, parts };
}

type TokenParts = Readonly<Record<TokenClass, bigint>>;

/** What each class of tokens costs, times the scale. */
function callParts(
  scaled: ScaledPrices,
  tokens: TokenUsage,
  calls: readonly TokenUsage[] | undefined,
): TokenParts {
  // Without tiers it is all the same where a token was used.
  if (calls === undefined || scaled.tiers.length === 0) return tokenParts(scaled, tokens);
  const sums: Record<TokenClass, bigint> = {
    input: 0n,
    cacheRead: 0n,
    cacheWrite5m: 0n,
    cacheWrite1h: 0n,
    output: 0n,
  };
  for (const call of calls) {
    const parts = tokenParts(scaled, call);
    for (const name of tokenClasses) sums[name] += parts[name];
  }
  return sums;
}

/** Of one call: at the standard rates, or at the dearest tier whose bound its input exceeds. */
function tokenParts(scaled: ScaledPrices, tokens: TokenUsage): TokenParts {
  const at = (rates: TokenRates): TokenParts => ({
    input: count(tokens.input) * rates.input,
    cacheRead: count(tokens.cacheRead) * rates.cacheRead,
    cacheWrite5m: count(tokens.cacheWrite5m) * rates.cacheWrite5m,
    cacheWrite1h: count(tokens.cacheWrite1h) * rates.cacheWrite1h,
    output: count(tokens.output) * rates.output,
  });
  if (scaled.tiers.length === 0) return at(scaled.standard);
  const input =
    count(tokens.input) + count(tokens.cacheRead) + count(tokens.cacheWrite5m) + count(tokens.cacheWrite1h);
  const over = scaled.tiers.filter(({ inputOver }) => input > inputOver).map(({ rates }) => at(rates));
  return over.length === 0
    ? at(scaled.standard)
    : over.reduce((dearest, parts) => (sumOf(parts) > sumOf(dearest) ? parts : dearest));
}

const sumOf = (parts: TokenParts): bigint => tokenClasses.reduce((sum, name) => sum + parts[name], 0n);

/**
 * What to hold before one upstream call: every input token at the dearest input price, every choice at its whole
 * output limit (rule 1.8), by the dearest tier that so much input may reach. Rounded up, so that a request within the
 * estimate costs at most the estimate.
 */
export function estimateMicros(prices: Prices, work: EstimatedWork): Micros {
  const { scale, standard, tiers } = scaledOf(prices);
  const input = count(work.inputTokens);
  const output = count(work.maxOutputTokens) * count(work.n);
  const at = (rates: TokenRates) =>
    input * largest(rates.input, rates.cacheWrite5m, rates.cacheWrite1h) + output * rates.output;
  // A prompt may turn out shorter than its estimate, and a longer one may be cheaper.
  const reached = tiers.filter(({ inputOver }) => input > inputOver).map(({ rates }) => at(rates));
  return (largest(at(standard), ...reached) + scale - 1n) / scale;
}

const largest = (...values: readonly bigint[]): bigint =>
  values.reduce((most, value) => (value > most ? value : most), 0n);

/** A counter as it may be billed: whole, not negative, bounded. Upstreams have been seen to report anything. */
export function billableCount(value: number): number {
  if (!(value > 0)) return 0;
  return Math.min(Math.trunc(value), MAX_TOKENS_PER_REQUEST);
}

function count(value: number): bigint {
  const billable = billableCount(value);
  return billable === 0 ? 0n : BigInt(billable);
}

function scaledOf(prices: Prices): ScaledPrices {
  const known = parsed.get(prices);
  if (known !== undefined) return known;
  const { tiers = [], tools } = prices;
  const texts = [
    ...[prices, ...tiers].flatMap((rates) => tokenClasses.map((name) => rates[name])),
    ...Object.values(tools),
  ];
  const digits = Math.max(...texts.map((text) => fraction(text).length));
  const integer = (text: string) => parseScaled(text, digits);
  const ratesOf = (rates: Rates): TokenRates => ({
    input: integer(rates.input),
    cacheRead: integer(rates.cacheRead),
    cacheWrite5m: integer(rates.cacheWrite5m),
    cacheWrite1h: integer(rates.cacheWrite1h),
    output: integer(rates.output),
  });
  const scaled: ScaledPrices = {
    scale: 10n ** BigInt(digits),
    standard: ratesOf(prices),
    tiers: tiers.map((tier) => ({ inputOver: BigInt(tier.inputOver), rates: ratesOf(tier) })),
    webSearch: 1000n * integer(tools.webSearch),
    webFetch: 1000n * integer(tools.webFetch),
    xSearchPost: 1000n * integer(tools.xSearchPost),
    xSearchProfile: 1000n * integer(tools.xSearchProfile),
  };
  parsed.set(prices, scaled);
  return scaled;
}

const fraction = (text: string): string => text.split(".")[1] ?? "";

/** `"1.25"` with 3 digits is `1250n`. A negative price cannot be declared (rule 6.7) and counts as nothing. */
function parseScaled(text: string, digits: number): bigint {
  if (text.startsWith("-")) return 0n;
  const [whole = "0"] = text.split(".");
  return BigInt(whole + fraction(text).padEnd(digits, "0"));
}
