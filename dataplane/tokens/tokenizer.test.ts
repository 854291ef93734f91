import fc from "fast-check";
import ranks from "gpt-tokenizer/bpeRanks/o200k_base";
import { countTokens as reference } from "gpt-tokenizer/encoding/o200k_base";
import { O200K_TOKEN_SPLIT_REGEX } from "gpt-tokenizer/encodingParams/constants";
import { beforeAll, describe, expect, test } from "vitest";
import { runs } from "../../test/fakes/runs.ts";
import { alphabets, english, randomText } from "../../test/fakes/texts.ts";
import { SEGMENT_CHARACTERS, Tokenizer } from "./tokenizer.ts";
import { buildVocabulary } from "./vocabulary.ts";

let tokenizer: Tokenizer;
beforeAll(() => {
  tokenizer = new Tokenizer(buildVocabulary(ranks), O200K_TOKEN_SPLIT_REGEX);
});

describe("the count is that of merging pairs", () => {
  test.each(Object.entries(alphabets))("%s", (_, alphabet) => {
    for (let length = 1; length <= 400; length += 7) {
      const text = randomText(alphabet, length, length);
      expect([text, tokenizer.count(text)]).toEqual([
        text,
        reference(text, { disallowedSpecial: new Set() }),
      ]);
    }
  });

  test("prose, code, and the names of special tokens, which are text here", () => {
    for (const text of [english.slice(0, 16_000), "<|endoftext|>", "x <|im_start|>user\n", ""])
      expect(tokenizer.count(text)).toBe(reference(text, { disallowedSpecial: new Set() }));
  });

  test("any mixture of anything", () => {
    // The reference leaves a byte order mark out.
    const anything = fc.oneof(
      fc.string({ unit: "binary", maxLength: 60 }).map((text) => text.replaceAll("\ufeff", "")),
      ...Object.values(alphabets).map((alphabet) =>
        fc.string({ unit: fc.constantFrom(...Array.from(alphabet)), maxLength: 60 }),
      ),
    );
    fc.assert(
      fc.property(fc.array(anything, { maxLength: 8 }), (parts) => {
        const text = parts.join("");
        expect(tokenizer.count(text)).toBe(reference(text, { disallowedSpecial: new Set() }));
      }),
      { numRuns: runs(1_000) },
    );
  }, 120_000);
});

test("long texts are cut between characters, and that hardly changes the count", () => {
  const text = `x${"😀".repeat(SEGMENT_CHARACTERS / 2 + 100)}${english.slice(0, 50_000)}`;
  const whole = reference(text, { disallowedSpecial: new Set() });
  expect(Math.abs(tokenizer.count(text) - whole)).toBeLessThan(20);
  expect(tokenizer.count("\ud800".repeat(SEGMENT_CHARACTERS + 1))).toBeGreaterThan(0);
}, 120_000);
