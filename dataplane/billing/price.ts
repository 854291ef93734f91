/**
 * What a request costs. Pure: prices are decimal strings, parsed to exact integers over a common power of ten;
 * a request's cost is summed exactly and rounded once, half up, to a micro-credit (service.md "Prices and billing rules").
 *
 * A price of `p` credits for a million tokens is `p` micro-credits a token; a price of `p` credits for a thousand
 * tool units is `1000 p` micro-credits a unit.
 */
import type { Prices } from "../config/schema.ts";
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

/** Prices as integers over one denominator: micro-credits a token or tool unit, times `scale`. */
interface Rates {
  readonly scale: bigint;
  readonly input: bigint;
  readonly cacheRead: bigint;
  readonly cacheWrite5m: bigint;
  readonly cacheWrite1h: bigint;
  readonly output: bigint;
  readonly webSearch: bigint;
  readonly webFetch: bigint;
  readonly xSearchPost: bigint;
  readonly xSearchProfile: bigint;
}

/** A snapshot's price objects live as long as the snapshot, so parsing them once is enough. */
const parsed = new WeakMap<Prices, Rates>();

/** Exact cost of the work done: one rounding, half up; the residue of the parts stands in the dearest of them. */
export function costMicros(prices: Prices, tokens: TokenUsage, tools: ToolUsage): Cost {
  const rates = ratesOf(prices);
  // Exact at first, times the scale; rounded down below.
  const parts: Record<ChargeClass, bigint> = {
    input: count(tokens.input) * rates.input,
    cacheRead: count(tokens.cacheRead) * rates.cacheRead,
    cacheWrite5m: count(tokens.cacheWrite5m) * rates.cacheWrite5m,
    cacheWrite1h: count(tokens.cacheWrite1h) * rates.cacheWrite1h,
    output: count(tokens.output) * rates.output,
    webSearch: count(tools.webSearches) * rates.webSearch,
    webFetch: count(tools.webFetches) * rates.webFetch,
    xSearch: count(tools.xPosts) * rates.xSearchPost + count(tools.xProfiles) * rates.xSearchProfile,
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
    parts[charge] = part / rates.scale;
    floors += parts[charge];
    if (part <= most) continue;
    most = part;
    dearest = charge;
  }
  const total = (2n * sum + rates.scale) / (2n * rates.scale);
  // Between 0 and the number of classes: each part was rounded down, the total was not rounded below their sum.
  parts[dearest] += total - floors;
  return { total, parts };
}

/**
 * What to hold before one upstream call: every input token at the dearest input price, every choice at its whole
 * output limit (rule 1.8). Rounded up, so that a request within the estimate costs at most the estimate.
 */
export function estimateMicros(prices: Prices, work: EstimatedWork): Micros {
  const rates = ratesOf(prices);
  const dearestInput = [rates.cacheWrite5m, rates.cacheWrite1h].reduce(
    (dearest, rate) => (rate > dearest ? rate : dearest),
    rates.input,
  );
  const exact =
    count(work.inputTokens) * dearestInput + count(work.maxOutputTokens) * count(work.n) * rates.output;
  return (exact + rates.scale - 1n) / rates.scale;
}

/** A counter as it may be billed: whole, not negative, bounded. Upstreams have been seen to report anything. */
export function billableCount(value: number): number {
  if (!(value > 0)) return 0;
  return Math.min(Math.trunc(value), MAX_TOKENS_PER_REQUEST);
}

function count(value: number): bigint {
  const billable = billableCount(value);
  return billable === 0 ? 0n : BigInt(billable);
}

function ratesOf(prices: Prices): Rates {
  const known = parsed.get(prices);
  if (known !== undefined) return known;
  const texts = [
    prices.input,
    prices.output,
    prices.cacheRead,
    prices.cacheWrite5m,
    prices.cacheWrite1h,
    ...Object.values(prices.tools),
  ];
  const digits = Math.max(...texts.map((text) => fraction(text).length));
  const integer = (text: string) => parseScaled(text, digits);
  const rates: Rates = {
    scale: 10n ** BigInt(digits),
    input: integer(prices.input),
    cacheRead: integer(prices.cacheRead),
    cacheWrite5m: integer(prices.cacheWrite5m),
    cacheWrite1h: integer(prices.cacheWrite1h),
    output: integer(prices.output),
    webSearch: 1000n * integer(prices.tools.webSearch),
    webFetch: 1000n * integer(prices.tools.webFetch),
    xSearchPost: 1000n * integer(prices.tools.xSearchPost),
    xSearchProfile: 1000n * integer(prices.tools.xSearchProfile),
  };
  parsed.set(prices, rates);
  return rates;
}

const fraction = (text: string): string => text.split(".")[1] ?? "";

/** `"1.25"` with 3 digits is `1250n`. A negative price cannot be declared (rule 6.7) and counts as nothing. */
function parseScaled(text: string, digits: number): bigint {
  if (text.startsWith("-")) return 0n;
  const [whole = "0"] = text.split(".");
  return BigInt(whole + fraction(text).padEnd(digits, "0"));
}
