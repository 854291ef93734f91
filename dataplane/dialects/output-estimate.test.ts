import fc from "fast-check";
import { expect, test } from "vitest";
import { tokensOfWeight, weightOf, weightOfJson } from "./output-estimate.ts";
import { runs } from "../../test/fakes/runs.ts";

const tokens = (text: string) => tokensOfWeight(weightOf(text));

test.each([
  ["", 0],
  ["a", 1],
  ["word", 1],
  ["Hello there, dear reader.", 7],
  ["über", 1],
  ["你好", 2],
  ["你好，世界", 4],
  ["こんにちは", 4],
  ["안녕하세요", 4],
  ["word 你好", 3],
  ["𠀀𠀀𠀀", 2],
  ["😀😀😀😀", 1],
])("%j is %i tokens (rule 10.6)", (text, expected) => {
  expect(tokens(text)).toBe(expected);
});

const anyText = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.string({
    unit: fc.constantFrom(
      "a",
      "\n",
      '"',
      "\\",
      "é",
      "中",
      "の",
      "한",
      "！",
      "😀",
      "𠀀",
      "\u2e7f",
      "\u2e80",
      "\ua000",
      "\uac00",
    ),
  }),
);

test("a text weighs the same as a string and as the bytes of its JSON, however its characters are escaped", () => {
  const escaped = (text: string) =>
    Array.from(
      { length: text.length },
      (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, "0")}`,
    ).join("");
  fc.assert(
    fc.property(anyText, (text) => {
      for (const json of [JSON.stringify(text).slice(1, -1), escaped(text)]) {
        const bytes = Buffer.from(json);
        expect(weightOfJson(bytes, 0, bytes.length)).toBe(weightOf(text));
      }
    }),
    { numRuns: runs(500) },
  );
});

test("the pieces of a text weigh together what it weighs, wherever it is cut", () => {
  fc.assert(
    fc.property(anyText, fc.nat(), (text, cut) => {
      const at = cut % (text.length + 1);
      expect(weightOf(text.slice(0, at)) + weightOf(text.slice(at))).toBe(weightOf(text));
    }),
  );
});
