/** PriceTables: from prices in USD or credits to exact credits. */
import type { Prices, Rates, Route, ServiceTier } from "../../dataplane/config/schema.ts";
import { momentMicros } from "../api/moment.ts";
import {
  type ModelPrice,
  type PriceChange,
  priceDefaults,
  type PricedServiceTier,
  type PriceTableSpec,
  type PriceTier,
} from "../api/price-table.ts";
import { multiply } from "./decimal.ts";
import type { Refusal, Refusals } from "./judge.ts";
import { type Declared, reference, type Verdict } from "./objects.ts";
import { oncePer } from "./once-per.ts";
import { servedTables } from "./prior.ts";
import { readSpec } from "./read-spec.ts";
import { sourceOf } from "./source.ts";

interface Table {
  readonly object: Declared;
  readonly verdict: Verdict;
  /** Returns a model's prices in credits, or null if it has none; null instead of a function: the table is not accepted. */
  readonly pricesOf: ((model: string) => Prices | null) | null;
  /** True when nothing may be sold at its last prices either. */
  readonly isRefused?: boolean;
}

export class PriceTables {
  readonly #all: readonly Table[];
  readonly #tables = new Map<string, Table>();

  constructor(objects: readonly Declared[], refusals: Refusals) {
    this.#all = objects.map((object) => {
      const refusal = refusals.get(object);
      return refusal === undefined ? readTable(object) : refusedTable(object, refusal);
    });
    for (const table of this.#all) this.#tables.set(reference(table.object), table);
  }

  /** Returns all verdicts. A table that is not accepted counts as served while one of the served `routes` has its prices. */
  verdicts(routes: readonly Route[]): readonly Verdict[] {
    const served = servedTables(routes);
    return this.#all.map(({ object, verdict, pricesOf }) =>
      pricesOf === null ? { ...verdict, serves: served.get(object.uid) ?? null } : verdict,
    );
  }

  /** Returns the uid of a table that exists and is not accepted. */
  uidOfBroken(namespace: string, name: string): string | undefined {
    const table = this.#tables.get(`${namespace}/${name}`);
    return table?.pricesOf === null ? table.object.uid : undefined;
  }

  /** Whether the table is left out as a whole: nothing is sold at its last prices either. */
  isRefused(namespace: string, name: string): boolean {
    return this.#tables.get(`${namespace}/${name}`)?.isRefused === true;
  }

  /** The model's prices in credits, or a sentence that says what is missing. */
  find(
    namespace: string,
    name: string,
    model: string,
  ): { readonly prices: Prices } | { readonly missing: string } {
    const table = this.#tables.get(`${namespace}/${name}`);
    if (table === undefined) return { missing: `PriceTable "${name}" is not in namespace "${namespace}"` };
    if (table.pricesOf === null)
      return { missing: `PriceTable "${name}" is not accepted; see its own status` };
    const prices = table.pricesOf(model);
    if (prices === null) return { missing: `PriceTable "${name}" has no price for the model "${model}"` };
    return { prices };
  }
}

const refusedTable = (object: Declared, { fault }: Refusal): Table => ({
  object,
  verdict: { object, accepted: [fault], resolved: [], serves: null, notes: [], facts: {} },
  pricesOf: null,
  isRefused: true,
});

const readTable = oncePer((object: Declared): Table => {
  const read = readSpec(object);
  const verdict: Verdict = {
    object,
    accepted: [],
    resolved: [],
    serves: object.generation,
    notes: [],
    facts: {},
  };
  if (!read.ok)
    return { object, verdict: { ...verdict, accepted: read.faults, serves: null }, pricesOf: null };
  const spec = read.spec as PriceTableSpec;
  const entries = new Map(spec.models?.map((entry) => [entry.model, entry]));
  return {
    object,
    verdict: { ...verdict, facts: { models: entries.size } },
    pricesOf: pricesOf(object, spec, entries),
  };
});

/** Returns a function that gives a model's prices, the very same object each time. */
function pricesOf(object: Declared, spec: PriceTableSpec, entries: ReadonlyMap<string, ModelPrice>) {
  const factor = spec.unit === "Credit" ? "1" : (spec.creditsPerUSD ?? priceDefaults.creditsPerUSD);
  const credits = (amount: string) => multiply(amount, factor);
  const amounts = { ...priceDefaults.tools[spec.unit], ...defined(spec.tools ?? {}) };
  const tools: Prices["tools"] = {
    webSearch: credits(amounts.webSearch),
    webFetch: credits(amounts.webFetch),
    xSearchPost: credits(amounts.xSearchPost),
    xSearchProfile: credits(amounts.xSearchProfile),
  };
  const ofEntry = oncePer((entry: ModelPrice): Prices => {
    const { changes } = entry;
    return {
      source: sourceOf(object),
      ...tokenPrices(entry, credits),
      ...(changes !== undefined && {
        changes: changes.map((change) => ({ from: fromOf(change), ...tokenPrices(change, credits) })),
      }),
      tools,
    };
  });
  return (model: string): Prices | null => {
    const entry = entries.get(model);
    return entry === undefined ? null : ofEntry(entry);
  };
}

type TokenPrices = Omit<ModelPrice | PriceChange, "model" | "from" | "changes">;

/** Every class of tokens with a price of its own, in credits. */
function tokenPrices(entry: TokenPrices, credits: (amount: string) => string) {
  const write5m = entry.cacheWrite5m ?? entry.input;
  const all: Rates = {
    input: entry.input,
    output: entry.output,
    cacheRead: entry.cacheRead ?? entry.input,
    cacheWrite5m: write5m,
    cacheWrite1h: entry.cacheWrite1h ?? write5m,
    ...defined({
      audioInput: entry.audioInput,
      audioOutput: entry.audioOutput,
      imageOutput: entry.imageOutput,
    }),
  };
  const { serviceTiers } = entry;
  return {
    ...ratesOf(all, credits),
    ...longPrompts(entry.tiers, all, credits),
    ...(serviceTiers !== undefined && {
      serviceTiers: serviceTiers.map((tier) => serviceTierOf(tier, all, credits)),
    }),
  };
}

/** @param all the prices that hold where a tier names none. */
const longPrompts = (
  tiers: readonly PriceTier[] | undefined,
  all: Rates,
  credits: (amount: string) => string,
): Pick<Prices, "tiers"> =>
  tiers === undefined
    ? {}
    : {
        tiers: tiers.map(({ inputOver, ...own }) => ({
          inputOver,
          ...ratesOf({ ...all, ...defined(own) }, credits),
        })),
      };

function serviceTierOf(
  { name, multiplier, tiers, ...own }: PricedServiceTier,
  all: Rates,
  credits: (amount: string) => string,
): ServiceTier {
  if (multiplier !== undefined) return { name, multiplier };
  const rates = { ...all, ...defined(own) };
  return { name, ...ratesOf(rates, credits), ...longPrompts(tiers, rates, credits) };
}

const ratesOf = (
  { audioInput, audioOutput, imageOutput, ...rates }: Rates,
  credits: (amount: string) => string,
): Rates => ({
  input: credits(rates.input),
  output: credits(rates.output),
  cacheRead: credits(rates.cacheRead),
  cacheWrite5m: credits(rates.cacheWrite5m),
  cacheWrite1h: credits(rates.cacheWrite1h),
  ...(audioInput !== undefined && { audioInput: credits(audioInput) }),
  ...(audioOutput !== undefined && { audioOutput: credits(audioOutput) }),
  ...(imageOutput !== undefined && { imageOutput: credits(imageOutput) }),
});

/** Returns the first whole millisecond not before the moment: requests are accepted at whole milliseconds. */
function fromOf({ from }: PriceChange): number {
  const micros = momentMicros(from);
  if (micros === null) throw new Error(`${from} is no moment`);
  const milliseconds = Number(micros / 1000n);
  return micros > BigInt(milliseconds) * 1000n ? milliseconds + 1 : milliseconds;
}

/** Removes the keys whose value is undefined, so that they replace no default. */
function defined<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
