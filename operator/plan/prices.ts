/** PriceTables: from prices in USD or credits to exact credits. */
import type { Prices } from "../../dataplane/config/schema.ts";
import { type ModelPrice, priceDefaults, type PriceTableSpec } from "../api/price-table.ts";
import { multiply } from "./decimal.ts";
import { type Declared, reference, type Verdict } from "./objects.ts";
import { readSpec } from "./read-spec.ts";
import { sourceOf } from "./source.ts";

interface Table {
  readonly object: Declared;
  /** null: not accepted. */
  readonly spec: PriceTableSpec | null;
  readonly models: ReadonlyMap<string, ModelPrice>;
}

export class PriceTables {
  readonly #tables = new Map<string, Table>();
  readonly verdicts: readonly Verdict[];

  constructor(objects: readonly Declared[]) {
    this.verdicts = objects.map((object) => {
      const read = readSpec(object);
      const spec = read.ok ? (read.spec as PriceTableSpec) : null;
      const models = new Map((spec?.models ?? []).map((entry) => [entry.model, entry]));
      this.#tables.set(reference(object), { object, spec, models });
      return {
        object,
        accepted: read.ok ? [] : read.faults,
        resolved: [],
        serves: read.ok ? object.generation : null,
        notes: [],
        facts: read.ok ? { models: models.size } : {},
      };
    });
  }

  /** The uid of a table, also of one that is not accepted. */
  uid(namespace: string, name: string): string | undefined {
    return this.#tables.get(`${namespace}/${name}`)?.object.uid;
  }

  /** The model's prices in credits, or a sentence that says what is missing. */
  find(
    namespace: string,
    name: string,
    model: string,
  ): { readonly prices: Prices } | { readonly missing: string } {
    const table = this.#tables.get(`${namespace}/${name}`);
    if (table === undefined) return { missing: `PriceTable "${name}" is not in namespace "${namespace}"` };
    if (table.spec === null) return { missing: `PriceTable "${name}" is not accepted; see its own status` };
    const entry = table.models.get(model);
    if (entry === undefined) return { missing: `PriceTable "${name}" has no price for the model "${model}"` };
    return { prices: pricesOf(table.object, table.spec, entry) };
  }
}

function pricesOf(object: Declared, spec: PriceTableSpec, entry: ModelPrice): Prices {
  const factor = spec.unit === "Credit" ? "1" : (spec.creditsPerUSD ?? priceDefaults.creditsPerUSD);
  const credits = (amount: string) => multiply(amount, factor);
  const write5m = entry.cacheWrite5m ?? entry.input;
  const tools = { ...priceDefaults.tools[spec.unit], ...defined(spec.tools ?? {}) };
  return {
    source: sourceOf(object),
    input: credits(entry.input),
    output: credits(entry.output),
    cacheRead: credits(entry.cacheRead ?? entry.input),
    cacheWrite5m: credits(write5m),
    cacheWrite1h: credits(entry.cacheWrite1h ?? write5m),
    tools: {
      webSearch: credits(tools.webSearch),
      webFetch: credits(tools.webFetch),
      xSearchPost: credits(tools.xSearchPost),
      xSearchProfile: credits(tools.xSearchProfile),
    },
  };
}

/** Without the keys whose value is undefined, so that they cover no default. */
function defined<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
