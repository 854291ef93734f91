import fc from "fast-check";
import { expect, test } from "vitest";
import { jsonTexts } from "./json-texts.ts";

const written = (value: unknown) => [...jsonTexts(value)].join("");

test("the pieces are what JSON.stringify writes", () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 5 }), (value) => {
      const parsed: unknown = JSON.parse(JSON.stringify(value));
      expect(written(parsed)).toBe(JSON.stringify(parsed));
    }),
  );
  expect(written(undefined)).toBe("null");
  expect(written({ __proto__: null, a: 1 })).toBe('{"a":1}');
});

test("no step is long, however long, wide or deep the value is", () => {
  const deep: unknown = JSON.parse(`${"[".repeat(200_000)}1${"]".repeat(200_000)}`);
  const wide = { list: Array.from({ length: 200_000 }, () => null), text: '\u0000"'.repeat(400_000) };
  for (const value of [deep, wide]) {
    // One piece and two slices of a string, each character escaped to six.
    let longest = 0;
    let characters = 0;
    for (const piece of jsonTexts(value)) {
      longest = Math.max(longest, piece.length);
      characters += piece.length;
    }
    expect(longest).toBeLessThan((1 + 2 * 6) * 16 * 1024);
    expect(characters).toBeGreaterThan(400_000);
  }
});
