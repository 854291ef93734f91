import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Prices, Rates } from "../../config/schema.ts";
import type { TokenUsage, ToolUsage } from "../meter.ts";
import { MAX_TOKENS_PER_REQUEST, chargeClasses, costMicros, estimateMicros, pricesAt } from "./price.ts";
import { noTokens, noTools } from "../token-usage.ts";

const source: Prices["source"] = { kind: "PriceTable", namespace: "n", name: "p", uid: "u", generation: 1 };
/** The prices of an example route at 32 credits a dollar, tools at their defaults. */
const sonnet: Prices = {
  source,
  input: "96",
  output: "480",
  cacheRead: "9.6",
  cacheWrite5m: "120",
  cacheWrite1h: "192",
  tools: { webSearch: "320", webFetch: "0", xSearchPost: "160", xSearchProfile: "320" },
};

/** Without a decimal place anywhere. */
const whole: Prices = { ...sonnet, input: "1", cacheRead: "10" };

describe("exact cost", () => {
  const cases: [string, Prices, Partial<TokenUsage>, Partial<ToolUsage>, bigint][] = [
    ["nothing costs nothing", sonnet, {}, {}, 0n],
    ["a token costs its price in micro-credits", sonnet, { input: 1 }, {}, 96n],
    ["each class has its own price", sonnet, { cacheRead: 5, cacheWrite5m: 1, cacheWrite1h: 1 }, {}, 360n],
    ["reasoning is part of the output and not charged twice", sonnet, { output: 3, reasoning: 2 }, {}, 1440n],
    ["a web search is 0.32 credit", sonnet, {}, { webSearches: 1 }, 320_000n],
    ["a web fetch is free", sonnet, {}, { webFetches: 9 }, 0n],
    [
      "x_search bills posts and profiles, not calls",
      sonnet,
      {},
      { xSearches: 1, xPosts: 3, xProfiles: 2 },
      1_120_000n,
    ],
    [
      "tools cost the same where a tier has a multiplier",
      { ...sonnet, serviceTiers: [{ name: "us", multiplier: "1.1" }] },
      {},
      { webSearches: 1, xSearches: 1, xPosts: 3, xProfiles: 2 },
      1_440_000n,
    ],
    ["a price below nothing is nothing", { ...sonnet, input: "-96" }, { input: 2, output: 1 }, {}, 480n],
    ["the smallest part counts", whole, { input: 1 }, {}, 1n],
    ["half a micro-credit rounds up", { ...sonnet, cacheRead: "0.5" }, { cacheRead: 1 }, {}, 1n],
    ["just below half rounds down", { ...sonnet, cacheRead: "0.499999999" }, { cacheRead: 1 }, {}, 0n],
    [
      "halves are added before they are rounded",
      { ...sonnet, input: "0.5", cacheRead: "0.5" },
      { input: 1, cacheRead: 1 },
      {},
      1n,
    ],
    ["nonsense from an upstream is not billed", sonnet, { input: -5, output: Number.NaN }, {}, 0n],
    ["fractions of a token are cut", sonnet, { input: 1.9 }, {}, 96n],
    ["a counter is bounded", { ...sonnet, input: "1" }, { input: 1e300 }, {}, BigInt(MAX_TOKENS_PER_REQUEST)],
  ];
  test.each(cases)("%s", (_name, prices, tokens, tools, total) => {
    expect(costMicros(prices, { ...noTokens, ...tokens }, { ...noTools, ...tools }).total).toBe(total);
  });

  test("rule 5.15: the residue stands in one part, the dearest", () => {
    const prices = { ...sonnet, input: "0.4", cacheRead: "0.4", output: "10.4" };
    const { total, parts } = costMicros(prices, { ...noTokens, input: 1, cacheRead: 1, output: 1 }, noTools);
    expect(total).toBe(11n);
    expect(parts).toMatchObject({ input: 0n, cacheRead: 0n, output: 11n });
  });

  test("rule 5.15: the dearest of the parts has the residue wherever it stands among them", () => {
    const prices = { ...sonnet, input: "10.4", cacheRead: "0.4", output: "0.4" };
    const { parts } = costMicros(prices, { ...noTokens, input: 1, cacheRead: 1, output: 1 }, noTools);
    expect(parts).toMatchObject({ input: 11n, cacheRead: 0n, output: 0n });
  });

  test("rule 5.15: what was not used has no part of the residue", () => {
    const tenth = { cacheRead: "0.1", cacheWrite5m: "0.1", cacheWrite1h: "0.1", output: "0.1" };
    const prices = { ...sonnet, ...tenth, input: "0.1", tools: { ...sonnet.tools, webFetch: "0.0001" } };
    const used = { ...noTokens, cacheRead: 1, cacheWrite5m: 1, cacheWrite1h: 1, output: 1 };
    const { total, parts } = costMicros(prices, used, { ...noTools, webFetches: 1 });
    expect(total).toBe(1n);
    expect(parts.input).toBe(0n);
  });
});

/** A fraction kept apart from the code under test: other parsing, other denominators, other rounding. */
interface Fraction {
  readonly numerator: bigint;
  readonly denominator: bigint;
}
const fraction = (text: string): Fraction => {
  const point = text.indexOf(".");
  if (point < 0) return { numerator: BigInt(text), denominator: 1n };
  let denominator = 1n;
  for (let at = point + 1; at < text.length; at += 1) denominator *= 10n;
  return { numerator: BigInt(text.replace(".", "")), denominator };
};
const times = (a: Fraction, factor: bigint): Fraction => ({ ...a, numerator: a.numerator * factor });
const plus = (a: Fraction, b: Fraction): Fraction => ({
  numerator: a.numerator * b.denominator + b.numerator * a.denominator,
  denominator: a.denominator * b.denominator,
});
const roundHalfUp = ({ numerator, denominator }: Fraction): bigint => {
  const quotient = numerator / denominator;
  const remainder = numerator % denominator;
  return remainder + remainder >= denominator ? quotient + 1n : quotient;
};

const decimal = fc
  .tuple(fc.nat(1_000_000), fc.option(fc.stringMatching(/^\d{1,12}$/), { nil: undefined }))
  .map(([whole, rest]) => (rest === undefined ? `${whole}` : `${whole}.${rest}`));
const rates = {
  input: decimal,
  output: decimal,
  cacheRead: decimal,
  cacheWrite5m: decimal,
  cacheWrite1h: decimal,
};
const anyTiers = fc
  .uniqueArray(fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 1, max: 4_000_000 })), {
    maxLength: 4,
  })
  .chain((bounds) =>
    fc.tuple(
      ...bounds
        .toSorted((a, b) => a - b)
        .map((inputOver) => fc.record({ inputOver: fc.constant(inputOver), ...rates })),
    ),
  );
const anyPrices: fc.Arbitrary<Prices> = fc.record({
  source: fc.constant(source),
  ...rates,
  tiers: anyTiers,
  tools: fc.record({ webSearch: decimal, webFetch: decimal, xSearchPost: decimal, xSearchProfile: decimal }),
});
const tokenCount = fc.oneof(fc.nat(20), fc.nat(2_000_000));
const anyTokens: fc.Arbitrary<TokenUsage> = fc.record({
  input: tokenCount,
  cacheRead: tokenCount,
  cacheWrite5m: tokenCount,
  cacheWrite1h: tokenCount,
  output: tokenCount,
  reasoning: fc.constant(0),
});
const anyTools: fc.Arbitrary<ToolUsage> = fc.record({
  webSearches: fc.nat(20),
  webFetches: fc.nat(20),
  xSearches: fc.nat(20),
  xPosts: fc.nat(200),
  xProfiles: fc.nat(200),
});

const classes = ["input", "cacheRead", "cacheWrite5m", "cacheWrite1h", "output"] as const;
const isMore = (a: Fraction, b: Fraction) => a.numerator * b.denominator > b.numerator * a.denominator;
const added = (a: TokenUsage, b: TokenUsage): TokenUsage => ({
  input: a.input + b.input,
  cacheRead: a.cacheRead + b.cacheRead,
  cacheWrite5m: a.cacheWrite5m + b.cacheWrite5m,
  cacheWrite1h: a.cacheWrite1h + b.cacheWrite1h,
  output: a.output + b.output,
  reasoning: 0,
});

/** Rule 10.3, read anew: one call at the dearest tier that its whole input exceeds, else at the standard rates. */
function exactCall(prices: Prices, call: TokenUsage): Fraction {
  const at = (row: Rates) =>
    classes.map((name) => times(fraction(row[name]), BigInt(call[name]))).reduce(plus);
  const input = call.input + call.cacheRead + call.cacheWrite5m + call.cacheWrite1h;
  const tiers = (prices.tiers ?? []).filter(({ inputOver }) => inputOver < input).map(at);
  return tiers.length === 0 ? at(prices) : tiers.reduce((most, next) => (isMore(next, most) ? next : most));
}

describe("laws", () => {
  test("the cost is the rational sum, rounded once, half up", () => {
    fc.assert(
      fc.property(
        anyPrices,
        fc.array(anyTokens, { minLength: 1, maxLength: 5 }),
        anyTools,
        (prices, calls, tools) => {
          const tokens = calls.reduce(added);
          const perToken = calls.map((call) => exactCall(prices, call));
          // Credits a thousand units, so a million micro-credits over a thousand for each.
          const perUnit = [
            times(fraction(prices.tools.webSearch), BigInt(tools.webSearches) * 1_000_000n),
            times(fraction(prices.tools.webFetch), BigInt(tools.webFetches) * 1_000_000n),
            times(fraction(prices.tools.xSearchPost), BigInt(tools.xPosts) * 1_000_000n),
            times(fraction(prices.tools.xSearchProfile), BigInt(tools.xProfiles) * 1_000_000n),
          ].map((part) => ({ ...part, denominator: part.denominator * 1000n }));
          const exact = roundHalfUp([...perToken, ...perUnit].reduce(plus));
          expect(costMicros(prices, tokens, tools, calls).total).toBe(exact);
          if (calls.length === 1) expect(costMicros(prices, tokens, tools).total).toBe(exact);
        },
      ),
    );
  });

  test("rule 5.15: the parts sum to the total, none is negative, a class without use costs nothing", () => {
    fc.assert(
      fc.property(anyPrices, anyTokens, anyTools, (prices, tokens, tools) => {
        const { total, parts } = costMicros(
          prices,
          { ...tokens, cacheRead: 0 },
          { ...tools, webSearches: 0 },
        );
        expect(chargeClasses.reduce((sum, charge) => sum + parts[charge], 0n)).toBe(total);
        expect(chargeClasses.every((charge) => parts[charge] >= 0n)).toBe(true);
        expect([parts.cacheRead, parts.webSearch]).toEqual([0n, 0n]);
      }),
    );
  });

  test("rule 1.8: a request within its estimate costs at most the estimate", () => {
    fc.assert(
      fc.property(anyPrices, anyTokens, fc.integer({ min: 1, max: 4 }), (prices, tokens, n) => {
        // A cache read may be priced above the input price; the estimate does not look at it (rule 1.8).
        const used = { ...tokens, cacheRead: 0, output: tokens.output * n };
        const inputTokens = used.input + used.cacheWrite5m + used.cacheWrite1h;
        const estimate = estimateMicros(prices, { inputTokens, maxOutputTokens: tokens.output, n });
        expect(costMicros(prices, used, noTools).total <= estimate).toBe(true);
      }),
    );
  });
});

describe("rule 10.3: long prompts", () => {
  const long: Prices = { ...sonnet, tiers: [{ ...sonnet, inputOver: 1000, input: "200", output: "700" }] };
  const cost = (tokens: Partial<TokenUsage>) => costMicros(long, { ...noTokens, ...tokens }, noTools).total;

  test("a bound is reached by what exceeds it, and then all of the request is dearer", () => {
    expect(cost({ input: 1000, output: 1 })).toBe(96_480n);
    expect(cost({ input: 1001, output: 1 })).toBe(200_900n);
  });
  test("what was read from a cache and written to one is input too", () => {
    expect(cost({ input: 1, cacheRead: 400, cacheWrite5m: 300, cacheWrite1h: 300 })).toBe(
      200n + 3840n + 36_000n + 57_600n,
    );
  });
  test("the parts of several calls are the sums of theirs and nothing else", () => {
    const { source: _source, tools: _tools, ...rates } = whole;
    const prices: Prices = { ...whole, tiers: [{ ...rates, inputOver: 100, input: "2" }] };
    const calls = [
      { ...noTokens, input: 3, output: 1 },
      { ...noTokens, input: 101 },
    ];
    const { parts } = costMicros(prices, { ...noTokens, input: 104, output: 1 }, noTools, calls);
    const none = {
      cacheRead: 0n,
      cacheWrite5m: 0n,
      cacheWrite1h: 0n,
      webSearch: 0n,
      webFetch: 0n,
      xSearch: 0n,
    };
    expect(parts).toEqual({ ...none, input: 3n + 202n, output: 480n });
  });
  test("each call of a loop counts by its own input", () => {
    const call = { ...noTokens, input: 600 };
    const both = { ...noTokens, input: 1200 };
    expect(costMicros(long, both, noTools, [call, call]).total).toBe(115_200n);
    expect(costMicros(long, both, noTools).total).toBe(240_000n);
  });
  test("the hold takes the dearest tier that so much input may reach, a cheaper one lowers it not", () => {
    const cheaper = {
      ...sonnet,
      inputOver: 2000,
      input: "1",
      cacheWrite5m: "1",
      cacheWrite1h: "1",
      output: "1",
    };
    const hold = (inputTokens: number) =>
      estimateMicros(
        { ...long, tiers: [...(long.tiers ?? []), cheaper] },
        { inputTokens, maxOutputTokens: 10, n: 1 },
      );
    expect(hold(1000)).toBe(192_000n + 4800n);
    expect(hold(1001)).toBe(200_200n + 7000n);
    expect(hold(2001)).toBe(400_200n + 7000n);
  });
  test("what is heard makes the input of a hold longer, too", () => {
    const work = { inputTokens: 600, maxOutputTokens: 0, n: 1 };
    // The dearest class of input costs 200 from 1001 tokens on, and 192 before.
    expect(estimateMicros(long, { ...work, audioInput: 400 })).toBe(192_000n);
    expect(estimateMicros(long, { ...work, audioInput: 401 })).toBe(200_200n);
    expect(estimateMicros(long, { ...work, inputTokens: 0, audioInput: 1 })).toBe(192n);
  });
});

describe("rule 10.3: tiers of service", () => {
  const own = { ...sonnet, input: "50", output: "100" };
  const tiered: Prices = {
    ...sonnet,
    tiers: [{ ...sonnet, inputOver: 1000, input: "200" }],
    serviceTiers: [
      { name: "priority", multiplier: "2" },
      { name: "us", multiplier: "1.1" },
      { ...own, name: "flex" },
      { ...own, name: "fast", input: "300", tiers: [{ ...own, inputOver: 1000, input: "900" }] },
    ],
  };
  const cost = (charged: string[], tokens: Partial<TokenUsage>, doubtful: string[] = []) =>
    costMicros(tiered, { ...noTokens, ...tokens, tiers: { charged, doubtful } }, noTools);

  test.each<[string[], string, number, bigint]>([
    [[], "standard", 10, 960n],
    [["priority"], "priority", 10, 1920n],
    [["priority", "us"], "priority+us", 10, 2112n],
    [["flex"], "flex", 10, 500n],
    [["flex", "us"], "flex+us", 10, 550n],
    // Of prices of their own the dearest.
    [["flex", "fast"], "flex+fast", 10, 3000n],
    [["flex", "fast", "us", "priority"], "flex+fast+us+priority", 10, 6600n],
    // A multiplier takes long prompts along; prices of their own hold for every length, or have bounds of their own.
    [["priority"], "priority", 1001, 400_400n],
    [["flex"], "flex", 1001, 50_050n],
    [["fast"], "fast", 1001, 900_900n],
    // What has no price (any more) is none.
    [["scale"], "standard", 10, 960n],
  ])("%o is %s, and costs what it says", (charged, tier, input, total) => {
    expect(cost(charged, { input })).toMatchObject({ total, tier });
  });

  test("rule 10.2: what is doubtful is charged where it is dearer", () => {
    expect(cost([], { input: 10 }, ["flex"])).toMatchObject({ total: 960n, tier: "standard" });
    expect(cost([], { input: 10 }, ["priority"])).toMatchObject({ total: 1920n, tier: "priority" });
    expect(cost(["us"], { input: 10 }, ["flex", "fast"])).toMatchObject({ total: 3300n, tier: "us+fast" });
  });

  test("calls of a loop are charged each by its own, and the row names all of them", () => {
    const call = (charged: string[]) => ({ ...noTokens, input: 10, tiers: { charged, doubtful: [] } });
    const calls = [call([]), call(["priority"]), call(["priority"]), noTokens];
    const sum = { ...noTokens, input: 30 };
    expect(costMicros(tiered, sum, noTools, calls)).toMatchObject({
      total: 960n + 2n * 1920n,
      tier: "standard,priority",
    });
  });

  test("a call that came to nothing names no tier, the cheapest one does", () => {
    const { source: _source, tools: _tools, ...rates } = whole;
    const prices: Prices = { ...whole, serviceTiers: [{ ...rates, name: "fast", input: "2" }] };
    const call = (charged: string[], input: number) => ({
      ...noTokens,
      input,
      tiers: { charged, doubtful: [] },
    });
    const tier = (...calls: TokenUsage[]) => costMicros(prices, noTokens, noTools, calls).tier;
    expect(tier(call([], 0), call(["fast"], 1))).toBe("fast");
    expect(tier(call([], 1), call(["fast"], 0))).toBe("standard");
    expect(tier(call([], 1), call(["fast"], 1))).toBe("standard,fast");
  });

  test("a model that is free holds nothing", () => {
    const { source: _source, tools: _tools, ...rates } = sonnet;
    const free = Object.fromEntries(Object.keys(rates).map((name) => [name, "0"]));
    const prices = { ...sonnet, ...free };
    expect(estimateMicros(prices, { inputTokens: 10, maxOutputTokens: 10, n: 1 })).toBe(0n);
  });

  test("the hold takes the dearest set that may apply", () => {
    const hold = (tiers: string[][]) =>
      estimateMicros(tiered, { inputTokens: 10, maxOutputTokens: 0, n: 1, tiers });
    expect(hold([[]])).toBe(1920n);
    expect(hold([[], ["flex"]])).toBe(1920n);
    expect(hold([[], ["priority"], ["priority", "us"]])).toBe(4224n);
    expect(hold([["priority", "us"], ["priority"], []])).toBe(4224n);
  });
});

describe("rule 10.5: images made", () => {
  const drawing: Prices = { ...sonnet, audioOutput: "2000", imageOutput: "3000" };
  const drawn = { ...noTokens, input: 10, output: 9, audioOutput: 3, imageOutput: 5 };

  test("their tokens have a price of their own, beside those of audio and of text", () => {
    expect(costMicros(drawing, drawn, noTools).parts.output).toBe(1n * 480n + 3n * 2000n + 5n * 3000n);
    expect(costMicros(sonnet, drawn, noTools).parts.output).toBe(9n * 480n);
  });
  test("where none are reported, all is text", () => {
    const { parts } = costMicros(
      { ...drawing, audioInput: "500" },
      { ...noTokens, input: 10, output: 9 },
      noTools,
    );
    expect(parts).toMatchObject({ input: 960n, output: 4320n });
  });
  test("there are no more of them than the output has beside its audio", () => {
    expect(costMicros(drawing, { ...drawn, output: 4 }, noTools).parts.output).toBe(3n * 2000n + 3000n);
  });
  test("the hold takes the dearest of what may come out", () => {
    const work = { inputTokens: 0, maxOutputTokens: 5, n: 2 };
    expect(estimateMicros(drawing, { ...work, draws: true })).toBe(30_000n);
    expect(estimateMicros(drawing, { ...work, draws: true, speaks: true })).toBe(30_000n);
    expect(estimateMicros(drawing, { ...work, speaks: true })).toBe(20_000n);
    expect(estimateMicros(drawing, work)).toBe(4800n);
  });
});

describe("rule 10.5: audio", () => {
  const speaking: Prices = { ...sonnet, audioInput: "1000", audioOutput: "2000" };
  const heard = { ...noTokens, input: 10, output: 5, audioInput: 4, audioOutput: 3 };

  test("tokens of audio have prices of their own", () => {
    const { parts } = costMicros(speaking, heard, noTools);
    expect([parts.input, parts.output]).toEqual([6n * 96n + 4000n, 2n * 480n + 6000n]);
  });
  test("without one they cost what others do, and there are no more of them than of all", () => {
    expect(costMicros(sonnet, heard, noTools).total).toBe(960n + 2400n);
    expect(costMicros(speaking, { ...heard, input: 1, output: 0 }, noTools).total).toBe(1000n);
  });
  test("the hold counts what is heard, and all of the output as spoken", () => {
    const work = { inputTokens: 10, maxOutputTokens: 5, n: 1, audioInput: 4, speaks: true };
    expect(estimateMicros(speaking, work)).toBe(1920n + 4000n + 10_000n);
  });
});

describe("rule 10.4: prices from a moment on", () => {
  const first = Date.parse("2027-01-01T00:00:00Z");
  const change = (from: number, input: string) => ({ ...sonnet, from, input });
  const prices: Prices = { ...sonnet, changes: [change(first, "1"), change(first + 5, "2")] };

  test.each([
    [0, "96"],
    [first - 1, "96"],
    [first, "1"],
    [first + 4, "1"],
    [first + 5, "2"],
    [first + 1e12, "2"],
  ])("a request of %d pays %s", (acceptedAt, input) => {
    expect(pricesAt(prices, acceptedAt).input).toBe(input);
  });
  test("tools, and where the prices come from, stay", () => {
    expect(pricesAt(prices, first)).toMatchObject({ tools: sonnet.tools, source });
    expect(pricesAt(prices, first)).not.toHaveProperty("from");
    expect(pricesAt(prices, first)).not.toHaveProperty("changes");
  });
});

describe("rule 1.8: estimates", () => {
  test("every input token counts at the dearest input price, every choice at its output limit", () => {
    expect(estimateMicros(sonnet, { inputTokens: 10, maxOutputTokens: 100, n: 2 })).toBe(1920n + 96_000n);
  });
  test("a fraction of a micro-credit is held as a whole one", () => {
    const cheap = { ...sonnet, input: "0.1", cacheWrite5m: "0", cacheWrite1h: "0", output: "0" };
    expect(estimateMicros(cheap, { inputTokens: 1, maxOutputTokens: 9, n: 1 })).toBe(1n);
  });
});
