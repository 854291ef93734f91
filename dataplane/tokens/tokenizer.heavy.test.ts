import fc from "fast-check";
import ranks from "gpt-tokenizer/bpeRanks/o200k_base";
import { O200K_TOKEN_SPLIT_REGEX } from "gpt-tokenizer/encodingParams/constants";
import { beforeAll, describe, expect, test } from "vitest";
import { computedMs } from "../../test/fakes/computed.ts";
import { runs } from "../../test/fakes/runs.ts";
import { alphabets, english, letters, randomText } from "../../test/fakes/texts.ts";
import { Tokenizer } from "./tokenizer.ts";
import { buildVocabulary } from "./vocabulary.ts";

let tokenizer: Tokenizer;
beforeAll(() => {
  tokenizer = new Tokenizer(buildVocabulary(ranks), O200K_TOKEN_SPLIT_REGEX);
});

/**
 * Nanoseconds of this thread's processor for each character. The lowest of some tries, no more than are needed to be
 * below `enough`: what other programs do to the processor's caches only ever adds.
 */
function costOf(text: string, enough = 0): number {
  const rounds = Math.ceil(150_000 / text.length);
  let lowest = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < 5 && lowest > enough; tries += 1) {
    const before = computedMs();
    for (let round = 0; round < rounds; round += 1) tokenizer.count(text);
    lowest = Math.min(lowest, ((computedMs() - before) * 1_000_000) / (rounds * text.length));
  }
  return lowest;
}

describe("counting is linear in the text whatever the text (rule 7.5)", () => {
  const long = 150_000;
  /** Three times the cost of prose, and as much again for a machine with other work. */
  const usual = 6;
  /** What has to go back at each step. */
  const worst = 15;
  const shapes: [name: string, text: string, most: number][] = [
    ...Object.entries(alphabets).map<[string, string, number]>(([name, alphabet]) => [
      `random ${name}`,
      randomText(alphabet, long),
      usual,
    ]),
    ["one letter", "x".repeat(long), usual],
    ["blanks", " ".repeat(long), usual],
    ["lines of blanks", `${" ".repeat(100)}\n`.repeat(long / 100), usual],
    ["zero-width and a mark", " \u200b\u0301".repeat(long / 3), usual],
    ["marks", "\u0301".repeat(long), usual],
    ["one emoji", "😀".repeat(long / 2), usual],
    ["contractions", "'s".repeat(long / 2), usual],
    ["runs of dashes", `${"-".repeat(200)}x`.repeat(long / 201), worst],
    ["equal signs", "=".repeat(long), worst],
  ];

  test("no shape costs much more for each character than prose, and none more the longer it is", () => {
    // What an earlier version remembered of this made everything after it slow.
    tokenizer.count(randomText(`${letters}   `, 1_900_000));
    const natural = costOf(english);
    for (const [name, text, most] of shapes)
      expect(costOf(text, most * natural) / natural, name).toBeLessThan(most);
    for (const unit of ["x", "=", " ", " \u200b\u0301", "模"]) {
      const short = costOf(unit.repeat(2_000)) + natural;
      expect(costOf(unit.repeat(long / unit.length), 3 * short), unit).toBeLessThan(3 * short);
    }
  }, 120_000);

  test("no mixture takes longer than 3 µs a character, and none throws", () => {
    const part = fc.record({
      alphabet: fc.constantFrom<string>(...Object.values(alphabets)),
      unit: fc.integer({ min: 1, max: 12 }),
      seed: fc.integer(),
      repeat: fc.integer({ min: 1, max: 1_000 }),
    });
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 4 }), (parts) => {
        const text = parts
          .map(({ alphabet, unit, seed, repeat }) => randomText(alphabet, unit, seed).repeat(repeat))
          .join("");
        const before = computedMs();
        tokenizer.count(text);
        const took = computedMs() - before;
        // The system counts in steps of some milliseconds, and a collection of garbage takes some.
        expect(took).toBeLessThan(0.003 * text.length + 50);
      }),
      { numRuns: runs(1_000) },
    );
  }, 120_000);
});
