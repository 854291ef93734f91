import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TextJoiner } from "./text-joiner.ts";

/** Iterations' texts, each as the pieces it came in, joined as a client sees them. */
function joined(iterations: readonly (readonly string[])[]): string {
  const joiner = new TextJoiner();
  let text = "";
  iterations.forEach((pieces, index) => {
    if (index > 0) joiner.toolRan();
    for (const piece of pieces) text += joiner.push(piece);
  });
  return text + joiner.end();
}

describe("rule 3.12: the texts of all iterations are joined by exactly one blank line", () => {
  test.each([
    [["A", "B"], "A\n\nB"],
    [["A\n", "\n\n\nB"], "A\n\nB"],
    [["A\r\n", "B"], "A\n\nB"],
    [["A", "", "B"], "A\n\nB"],
    [["A", "\n\n", "B"], "A\n\nB"],
    [["", "B"], "B"],
    [["\n", "B"], "B"],
    [["A", ""], "A"],
    [["A", "\n"], "A"],
    [["\nA\n\nB\n"], "\nA\n\nB\n"],
    [["A  ", "  B"], "A  \n\n  B"],
    [["A", " \n ", "B"], "A\n\nB"],
    [["A", " ", "\t", "B"], "A\n\nB"],
    [[" \n ", "B"], "B"],
    [["A", " \n "], "A"],
    [["A \n \n ", " \n\t\n  B"], "A \n\n  B"],
    [["A\n \nB", "C"], "A\n \nB\n\nC"],
    [[" \n A \n "], " \n A \n "],
    [[" \n "], " \n "],
    [[], ""],
  ])("%j", (iterations, expected) => {
    expect(joined(iterations.map((text) => [text]))).toBe(expected);
    expect(joined(iterations.map((text) => Array.from(text)))).toBe(expected);
  });

  test("however the pieces are cut", () => {
    const pieces = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "\n", "\r", " ") }));
    fc.assert(
      fc.property(fc.array(pieces), (iterations) => {
        expect(joined(iterations)).toBe(joined(iterations.map((texts) => [texts.join("")])));
      }),
    );
  });
});
