/**
 * What a request costs. Pure: prices are exact integers over a common power of ten (scaled-prices.ts);
 * a request's cost is summed exactly and rounded once, half up, to a micro-credit (service.md "Prices and billing rules").
 *
 * A price of `p` credits for a million tokens is `p` micro-credits a token; a price of `p` credits for a thousand
 * tool units is `1000 p` micro-credits a unit.
 */
import type { Prices } from "../../config/schema.ts";
import type { TokenUsage, ToolUsage } from "../meter.ts";
import type { Micros } from "../credits.ts";
import {
  largest,
  scaledOf,
  tokenClasses,
  type ScaledPrices,
  type ScaledTier,
  type TokenClass,
  type TokenRates,
} from "./scaled-prices.ts";

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

/** The most that one request may use, as far as it is known before it runs. */
export interface EstimatedWork {
  /** Input tokens: text bytes ÷ 3, plus fixed sizes for images and documents (rule 1.8). */
  readonly inputTokens: number;
  /** The clamped output limit of one choice. */
  readonly maxOutputTokens: number;
  /** Number of choices (Chat's `n`). */
  readonly n: number;
  /** Sets of tiers that the request may be charged by; absent: the standard one alone. */
  readonly tiers?: readonly (readonly string[])[];
  /** Most tokens of audio, in addition to `inputTokens`. */
  readonly audioInput?: number;
  /** Whether the model may speak, or make images: every token of its output may be one of those. */
  readonly speaks?: boolean;
  readonly draws?: boolean;
  /** Whether the upstream may compact the conversation first, which costs as much again (rule 10.7). */
  readonly compacts?: boolean;
}

/**
 * More than any model can read or write in one request. A counter beyond it is an upstream's nonsense, and must
 * not be able to overflow the 64-bit columns that sums are kept in.
 */
export const MAX_TOKENS_PER_REQUEST = 1_000_000_000;

/** A request's charge by class, and the tier of service that it was charged by. */
export interface TieredCost extends Cost {
  /** `standard`; tiers that apply at once are joined by `+`, those of several calls, where they differ, by `,`. */
  readonly tier: string;
}

/** Prices from each change on. */
const changed = new WeakMap<object, Prices>();

/**
 * The prices of a request that was accepted at this moment (rule 10.4); they apply to it until its end.
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
 * Exact cost of the work done: one rounding, half up; what the parts lack to the total is added to the dearest of them.
 * @param calls the tokens of each upstream call, where there was more than one: each is charged by its own input (rule 10.3).
 * They sum to `tokens`.
 */
export function costMicros(
  prices: Prices,
  tokens: TokenUsage,
  tools: ToolUsage,
  calls?: readonly TokenUsage[],
): TieredCost {
  const scaled = scaledOf(prices);
  const { parts: ofTokens, tier } = tokenCharge(scaled, tokens, calls);
  // Exact at first, times the scale; rounded down below.
  const parts: Record<ChargeClass, bigint> = {
    ...ofTokens,
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
  return { total, parts, tier };
}

type TokenParts = Readonly<Record<TokenClass, bigint>>;

interface TokenCharge {
  /** Cost of each class of tokens, times the scale. */
  readonly parts: TokenParts;
  readonly tier: string;
}

/** Charges each call by its own input and tiers; without such prices it does not matter which call used a token. */
function tokenCharge(
  scaled: ScaledPrices,
  tokens: TokenUsage,
  calls: readonly TokenUsage[] | undefined,
): TokenCharge {
  if (calls === undefined || (scaled.standard.tiers.length === 0 && scaled.serviceTiers.size === 0))
    return callCharge(scaled, tokens);
  const sums: Record<TokenClass, bigint> = {
    input: 0n,
    cacheRead: 0n,
    cacheWrite5m: 0n,
    cacheWrite1h: 0n,
    output: 0n,
  };
  const tiers = new Set<string>();
  for (const call of calls) {
    const { parts, tier } = callCharge(scaled, call);
    for (const name of tokenClasses) sums[name] += parts[name];
    // A call that cost nothing was charged by no tier.
    if (sumOf(parts) > 0n) tiers.add(tier);
  }
  return { parts: sums, tier: [...tiers].join(",") || STANDARD };
}

/** Name in rows and reports of the tier with the model's own prices. */
export const STANDARD = "standard";
const noNames: readonly string[] = [];

/** Charges one call, by those of its doubtful tiers that make it dearest (rule 10.2). */
function callCharge(scaled: ScaledPrices, tokens: TokenUsage): TokenCharge {
  // Most calls.
  if (tokens.tiers === undefined) return setCharge(scaled, noNames, tokens);
  const { charged, doubtful } = tokens.tiers;
  const sets = doubtful.reduce<(readonly string[])[]>(
    (all, name) => [...all, ...all.map((set) => [...set, name])],
    [charged],
  );
  return dearestOf(
    sets.map((names) => setCharge(scaled, names, tokens)),
    ({ parts }) => sumOf(parts),
  );
}

/** Tiers that apply at once. */
interface HeldTiers {
  /** Tiers with prices of their own, of which the dearest applies; without any the standard prices. */
  readonly priced: readonly ScaledTier[];
  /** Product of the multipliers, times `units`, which is a factor of `scale`. */
  readonly times: bigint;
  readonly tier: string;
}

function heldTiers(
  { standard, serviceTiers, unit, units }: ScaledPrices,
  names: readonly string[],
): HeldTiers {
  const known = [...new Set(names)].filter((name) => serviceTiers.has(name));
  const priced: ScaledTier[] = [];
  let times = units;
  for (const name of known) {
    const tier = serviceTiers.get(name);
    if (typeof tier === "bigint") times = (times * tier) / unit;
    else if (tier !== undefined) priced.push(tier);
  }
  if (priced.length === 0) priced.push(standard);
  return { priced, times, tier: known.join("+") || STANDARD };
}

function setCharge(scaled: ScaledPrices, names: readonly string[], tokens: TokenUsage): TokenCharge {
  // Most models. Without multipliers their unit is one.
  if (scaled.serviceTiers.size === 0) return { parts: tokenParts(scaled.standard, tokens), tier: STANDARD };
  const { priced, times, tier } = heldTiers(scaled, names);
  const parts = dearestOf(
    priced.map((one) => tokenParts(one, tokens)),
    sumOf,
  );
  return {
    parts: {
      input: parts.input * times,
      cacheRead: parts.cacheRead * times,
      cacheWrite5m: parts.cacheWrite5m * times,
      cacheWrite1h: parts.cacheWrite1h * times,
      output: parts.output * times,
    },
    tier,
  };
}

/** Charges at a tier's own rates, or at the dearest of its long-prompt rates whose bound the input exceeds. */
function tokenParts({ standard, tiers }: ScaledTier, tokens: TokenUsage): TokenParts {
  if (tiers.length === 0) return partsAt(standard, tokens);
  const prompt =
    count(tokens.input) + count(tokens.cacheRead) + count(tokens.cacheWrite5m) + count(tokens.cacheWrite1h);
  const over = tiers.filter(({ inputOver }) => prompt > inputOver).map(({ rates }) => partsAt(rates, tokens));
  return over.length === 0 ? partsAt(standard, tokens) : dearestOf(over, sumOf);
}

function partsAt(rates: TokenRates, tokens: TokenUsage): TokenParts {
  const input = count(tokens.input);
  const output = count(tokens.output);
  const heard = least(count(tokens.audioInput ?? 0), input);
  const spoken = least(count(tokens.audioOutput ?? 0), output);
  const drawn = least(count(tokens.imageOutput ?? 0), output - spoken);
  return {
    input: (input - heard) * rates.input + heard * rates.audioInput,
    cacheRead: count(tokens.cacheRead) * rates.cacheRead,
    cacheWrite5m: count(tokens.cacheWrite5m) * rates.cacheWrite5m,
    cacheWrite1h: count(tokens.cacheWrite1h) * rates.cacheWrite1h,
    output: (output - spoken - drawn) * rates.output + spoken * rates.audioOutput + drawn * rates.imageOutput,
  };
}

const sumOf = (parts: TokenParts): bigint => tokenClasses.reduce((sum, name) => sum + parts[name], 0n);

/** The dearest; of equal ones the first. */
const dearestOf = <T>(found: readonly T[], cost: (one: T) => bigint): T =>
  found.reduce((dearest, one) => (cost(one) > cost(dearest) ? one : dearest));

/**
 * What to hold before one upstream call: every input token at the dearest input price, every choice at its whole output limit
 * (rule 1.8), by the dearest tiers that may apply and the dearest of their long-prompt rates that so much input may reach.
 * Rounded up, so that a request within the estimate costs at most the estimate.
 */
export function estimateMicros(prices: Prices, work: EstimatedWork): Micros {
  const scaled = scaledOf(prices);
  let most = 0n;
  for (const names of work.tiers ?? onlyStandard) {
    const cost = setEstimate(scaled, names, work);
    if (cost > most) most = cost;
  }
  if (work.compacts === true) most *= 2n;
  return (most + scaled.scale - 1n) / scaled.scale;
}

const onlyStandard: readonly (readonly string[])[] = [noNames];

/** In micro-credits times the scale, as everything below. */
function setEstimate(scaled: ScaledPrices, names: readonly string[], work: EstimatedWork): bigint {
  // Most models.
  if (scaled.serviceTiers.size === 0) return tierEstimate(scaled.standard, work);
  const { priced, times } = heldTiers(scaled, names);
  return largest(...priced.map((tier) => tierEstimate(tier, work))) * times;
}

function tierEstimate({ standard, tiers }: ScaledTier, work: EstimatedWork): bigint {
  const usual = estimateAt(standard, work);
  if (tiers.length === 0) return usual;
  const input = count(work.inputTokens) + count(work.audioInput ?? 0);
  // A prompt may turn out shorter than its estimate, and a longer one may be cheaper.
  const reached = tiers.filter(({ inputOver }) => input > inputOver);
  return largest(usual, ...reached.map(({ rates }) => estimateAt(rates, work)));
}

function estimateAt(rates: TokenRates, work: EstimatedWork): bigint {
  const { dearestInput } = rates;
  let dearestOutput = rates.output;
  if (work.speaks === true) dearestOutput = largest(dearestOutput, rates.audioOutput);
  if (work.draws === true) dearestOutput = largest(dearestOutput, rates.imageOutput);
  const input = count(work.inputTokens) * dearestInput;
  const output = count(work.maxOutputTokens) * count(work.n) * dearestOutput;
  const heard = count(work.audioInput ?? 0);
  return heard === 0n ? input + output : input + output + heard * largest(dearestInput, rates.audioInput);
}

const least = (a: bigint, b: bigint): bigint => (a < b ? a : b);
/** A counter as it may be billed: whole, not negative, bounded. Upstreams have been seen to report anything. */
export function billableCount(value: number): number {
  if (!(value > 0)) return 0;
  return Math.min(Math.trunc(value), MAX_TOKENS_PER_REQUEST);
}

function count(value: number): bigint {
  const billable = billableCount(value);
  return billable === 0 ? 0n : BigInt(billable);
}
