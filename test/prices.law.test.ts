/**
 * What a request costs by a PriceTable as it is written, against a computation of its own: YAML's decimals, fractions of
 * big integers, and moments to the microsecond, none of it shared with the operator or the data plane.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { costMicros, pricesAt } from "../dataplane/billing/prices/price.ts";
import type { TokenUsage } from "../dataplane/billing/meter.ts";
import { noTools } from "../dataplane/billing/token-usage.ts";
import { priceTableSpec } from "../operator/api/price-table.ts";
import type { Declared } from "../operator/plan/objects.ts";
import { PriceTables } from "../operator/plan/prices.ts";
import { runs } from "./fakes/runs.ts";

const classes = [
  "input",
  "output",
  "cacheRead",
  "cacheWrite5m",
  "cacheWrite1h",
  "audioInput",
  "audioOutput",
  "imageOutput",
] as const;
type Class = (typeof classes)[number];
type Written = { [Name in Class]?: string };
interface Bounded extends Written {
  inputOver: number;
}
interface Tier extends Written {
  name: string;
  multiplier?: string;
  tiers?: Bounded[];
}
interface Entry extends Written {
  tiers?: Bounded[];
  serviceTiers?: Tier[];
}

// The computation: numerators over one power of ten that is large enough for all of them.
const DIGITS = 60n;
const ONE = 10n ** DIGITS;
const exact = (text: string): bigint => {
  const [whole = "", rest = ""] = text.split(".");
  return BigInt(whole + rest) * 10n ** (DIGITS - BigInt(rest.length));
};

/** What each class costs where a row may leave it out. */
function filled(row: Written, over: Written): Record<Class, string> {
  const pick = (name: Class) => row[name] ?? over[name];
  const input = pick("input") ?? "0";
  const output = pick("output") ?? "0";
  const cacheWrite5m = pick("cacheWrite5m") ?? input;
  return {
    input,
    output,
    cacheRead: pick("cacheRead") ?? input,
    cacheWrite5m,
    cacheWrite1h: pick("cacheWrite1h") ?? cacheWrite5m,
    audioInput: pick("audioInput") ?? input,
    audioOutput: pick("audioOutput") ?? output,
    imageOutput: pick("imageOutput") ?? output,
  };
}

function rowCost(row: Record<Class, string>, call: TokenUsage): bigint {
  const { audioInput = 0, audioOutput = 0, imageOutput = 0 } = call;
  const parts: readonly (readonly [Class, number])[] = [
    ["input", call.input - audioInput],
    ["audioInput", audioInput],
    ["cacheRead", call.cacheRead],
    ["cacheWrite5m", call.cacheWrite5m],
    ["cacheWrite1h", call.cacheWrite1h],
    ["output", call.output - audioOutput - imageOutput],
    ["audioOutput", audioOutput],
    ["imageOutput", imageOutput],
  ];
  return parts.reduce((sum, [name, tokens]) => sum + exact(row[name]) * BigInt(tokens), 0n);
}

const media = ["audioInput", "audioOutput", "imageOutput"];
const withoutMedia = (row: Written): Written =>
  Object.fromEntries(Object.entries(row).filter(([name]) => !media.includes(name)));
const mediaOf = (row: Written): Written =>
  Object.fromEntries(media.flatMap((name) => (name in row ? [[name, row[name as Class]]] : [])));

const most = (values: readonly bigint[]) => values.reduce((a, b) => (a > b ? a : b));

/** A table's row with its long prompts: the dearest of those that are exceeded. */
function rowsCost(
  own: Record<Class, string>,
  tiers: readonly Bounded[],
  media: Written,
  call: TokenUsage,
): bigint {
  const prompt = call.input + call.cacheRead + call.cacheWrite5m + call.cacheWrite1h;
  const reached = tiers.filter(({ inputOver }) => prompt > inputOver);
  if (reached.length === 0) return rowCost(own, call);
  // Audio and images without a price of their own cost what text does, also of a long prompt.
  const plain = (row: Bounded): Written => {
    return { ...withoutMedia(own), ...media, ...row };
  };
  return most(reached.map((row) => rowCost(filled(plain(row), {}), call)));
}

/** In units of the table, times ONE squared, for a million tokens. */
function callCost(entry: Entry, call: TokenUsage): bigint {
  const base = filled(entry, {});
  const found = new Map(entry.serviceTiers?.map((tier) => [tier.name, tier]));
  const cost = (names: readonly string[]) => {
    const tiers = names.flatMap((name) => found.get(name) ?? []);
    const own = tiers.filter(({ multiplier }) => multiplier === undefined);
    const costs = own.map((tier) => {
      const media = { ...mediaOf(entry), ...mediaOf(tier) };
      const row = filled({ ...withoutMedia(base), ...media, ...withoutNames(tier) }, {});
      return rowsCost(row, tier.tiers ?? [], media, call);
    });
    const dearest = costs.length > 0 ? most(costs) : rowsCost(base, entry.tiers ?? [], mediaOf(entry), call);
    const factor = tiers.reduce((product, { multiplier = "1" }) => (product * exact(multiplier)) / ONE, ONE);
    return dearest * factor;
  };
  const { charged, doubtful } = call.tiers ?? { charged: [], doubtful: [] };
  const sets = doubtful.reduce<string[][]>(
    (all, name) => [...all, ...all.map((set) => [...set, name])],
    [[...charged]],
  );
  return most(sets.map(cost));
}

const withoutNames = ({ name: _name, multiplier: _multiplier, tiers: _tiers, ...own }: Tier): Written => own;

// Whatever a table may say.
const decimal = fc
  .tuple(fc.nat(10_000), fc.option(fc.stringMatching(/^\d{1,6}$/), { nil: undefined }))
  .map(([whole, rest]) => (rest === undefined ? `${whole}` : `${whole}.${rest}`));
const some = { requiredKeys: [] };
const optionalRates = Object.fromEntries(classes.map((name) => [name, decimal])) as Record<
  Class,
  typeof decimal
>;
const bounds = (max: number) =>
  fc
    .uniqueArray(fc.oneof(fc.integer({ min: 1, max: 50 }), fc.integer({ min: 1, max: 1_000_000 })), {
      minLength: 1,
      maxLength: max,
    })
    .chain((found) =>
      fc.tuple(
        ...found
          .toSorted((a, b) => a - b)
          .map((inputOver) =>
            fc.record(
              { inputOver: fc.constant(inputOver), ...optionalRates },
              { requiredKeys: ["inputOver"] },
            ),
          ),
      ),
    );
const names = ["priority", "flex", "fast", "us"];
const serviceTier = (name: string): fc.Arbitrary<Tier> =>
  fc.oneof(
    fc.stringMatching(/^[1-9]\d{0,2}(\.\d{1,6})?$/).map((multiplier) => ({ name, multiplier })),
    fc
      .tuple(decimal, fc.record({ ...optionalRates, tiers: bounds(4) }, some))
      .map(([input, rest]) => ({ ...rest, input, name })),
  );
const serviceTiers = fc
  .subarray(names, { minLength: 1 })
  .chain((chosen) => fc.tuple(...chosen.map((name) => serviceTier(name))));
const entry = fc
  .tuple(
    fc.record({ input: decimal, output: decimal }),
    fc.record({ ...optionalRates, tiers: bounds(4), serviceTiers }, some),
  )
  .map(([needed, rest]) => ({ ...rest, ...needed })) as fc.Arbitrary<Entry>;

const START = Date.parse("2027-01-01T00:00:00Z");
/** Microseconds after START, close to each other. */
const moments = fc
  .uniqueArray(fc.nat(20_000), { maxLength: 3 })
  .map((found) => found.toSorted((a, b) => a - b));
const momentText = (micros: number) =>
  `${new Date(START + Math.floor(micros / 1000)).toISOString().slice(0, 23)}${String(micros % 1000).padStart(3, "0")}Z`;
const unit = fc.oneof(
  fc.constant({ unit: "Credit" as const, factor: "1" }),
  fc.stringMatching(/^[1-9]\d{0,2}(\.\d{1,3})?$/).map((factor) => ({ unit: "USD" as const, factor })),
);
const count = fc.oneof(fc.nat(20), fc.nat(400_000));
const tiersOfCall = fc
  .subarray(names)
  .chain((chosen) =>
    fc.nat(chosen.length).map((at) => ({ charged: chosen.slice(0, at), doubtful: chosen.slice(at) })),
  );
const call = fc
  .record({
    input: count,
    cacheRead: count,
    cacheWrite5m: count,
    cacheWrite1h: count,
    output: count,
    heard: count,
    spoken: count,
    drawn: count,
    tiers: tiersOfCall,
  })
  .map(({ heard, spoken, drawn, ...tokens }): TokenUsage => {
    const audioOutput = Math.min(spoken, tokens.output);
    return {
      ...tokens,
      reasoning: 0,
      audioInput: Math.min(heard, tokens.input),
      audioOutput,
      imageOutput: Math.min(drawn, tokens.output - audioOutput),
    };
  });

test("rule 10.4: what is written, at the moment of acceptance, exactly and rounded once", () => {
  fc.assert(
    fc.property(
      unit,
      entry,
      moments.chain((found) =>
        fc.tuple(...found.map((micros) => entry.map((written) => ({ micros, written })))),
      ),
      fc.nat(21),
      fc.array(call, { minLength: 1, maxLength: 4 }),
      ({ unit: written, factor }, first, changes, acceptedMs, calls) => {
        const spec = priceTableSpec.parse({
          unit: written,
          ...(written === "USD" && { creditsPerUSD: factor }),
          models: [
            {
              model: "m",
              ...first,
              ...(changes.length > 0 && {
                changes: changes.map((change) => ({ from: momentText(change.micros), ...change.written })),
              }),
            },
          ],
        });
        const found = new PriceTables([declared(spec)], new Map()).find("default", "default", "m");
        if (!("prices" in found)) throw new Error(found.missing);
        const prices = pricesAt(found.prices, START + acceptedMs);

        const holds = changes.findLast(({ micros }) => micros <= acceptedMs * 1000)?.written ?? first;
        // A price is for a million tokens: as many credits are as many micro-credits a token.
        const numerator = calls.reduce((sum, one) => sum + callCost(holds, one), 0n) * exact(factor);
        const denominator = ONE ** 3n;
        const rounded = (2n * numerator + denominator) / (2n * denominator);

        const tokens = calls.reduce(added);
        const { total, parts } = costMicros(
          prices,
          calls.length === 1 ? (calls[0] ?? tokens) : tokens,
          noTools,
          calls.length === 1 ? undefined : calls,
        );
        expect(total).toBe(rounded);
        expect(Object.values(parts).reduce((sum, part) => sum + part, 0n)).toBe(total);
      },
    ),
    { numRuns: runs(400) },
  );
});

const added = (a: TokenUsage, b: TokenUsage): TokenUsage => ({
  input: a.input + b.input,
  cacheRead: a.cacheRead + b.cacheRead,
  cacheWrite5m: a.cacheWrite5m + b.cacheWrite5m,
  cacheWrite1h: a.cacheWrite1h + b.cacheWrite1h,
  output: a.output + b.output,
  reasoning: 0,
  audioInput: (a.audioInput ?? 0) + (b.audioInput ?? 0),
  audioOutput: (a.audioOutput ?? 0) + (b.audioOutput ?? 0),
  imageOutput: (a.imageOutput ?? 0) + (b.imageOutput ?? 0),
});

const declared = (spec: object): Declared => ({
  kind: "PriceTable",
  namespace: "default",
  name: "default",
  uid: "u",
  generation: 1,
  creationTimestamp: null,
  createdAt: 0,
  spec,
  faults: [],
});
