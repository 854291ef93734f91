/** Laws of cutting answers at stop sequences: over chunkings, Unicode and overlaps, against a matcher that tries every place. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { chatStops, type CutText, StopMatcher, StopSequences, stopsCutHere } from "./stop-sequences.ts";
import { chunked, plainCut, stopAlphabets, words } from "../../test/fakes/stop-texts.ts";
import { runs } from "../../test/fakes/runs.ts";

/** A text cut piece by piece; also what had been said after each piece. */
function piecewise(pieces: readonly string[], stops: readonly string[]): CutText & { said: string[] } {
  const matcher = new StopMatcher(new StopSequences(stops));
  const said: string[] = [];
  let whole = "";
  for (const piece of pieces) {
    const { text, stop } = matcher.push(piece);
    whole += text;
    said.push(whole);
    if (stop !== null) return { text: whole, stop, said };
  }
  return { text: whole + matcher.end(), stop: null, said };
}

describe.each(Object.entries(stopAlphabets))("texts of %s", (_, letters) => {
  const stops = fc.array(words(letters, 1, 5), { minLength: 1, maxLength: 6 });
  const text = words(letters, 0, 40);

  test("however it is chunked, a text ends before the sequence that is completed first", () => {
    fc.assert(
      fc.property(chunked(text), stops, (pieces, some) => {
        const { said: _said, ...cut } = piecewise(pieces, some);
        expect(cut).toEqual(plainCut(pieces.join(""), some));
      }),
      { numRuns: runs(1_000) },
    );
  });

  test("nothing of a sequence ever leaves, and no more is kept back than may be the beginning of one", () => {
    fc.assert(
      fc.property(chunked(text), stops, (pieces, some) => {
        const { text: whole, said } = piecewise(pieces, some);
        let came = "";
        for (const [index, soFar] of said.entries()) {
          came += pieces[index] as string;
          expect(whole.startsWith(soFar)).toBe(true);
          if (soFar.length === whole.length) continue;
          const held = came.slice(soFar.length);
          expect(some.some((stop) => stop.length > held.length && stop.startsWith(held)) || held === "").toBe(
            true,
          );
        }
      }),
      { numRuns: runs(1_000) },
    );
  });
});

test("a text is read once, in however many pieces, whatever the sequences", () => {
  class Counting extends StopSequences {
    steps = 0;

    override step(node: number, unit: number): number {
      this.steps += 1;
      return super.step(node, unit);
    }
  }
  const sequences = new Counting(Array.from({ length: 100 }, (_, index) => `${"a".repeat(140)}${index}`));
  const matcher = new StopMatcher(sequences);
  for (let at = 0; at < 2_000; at += 1) expect(matcher.push("a").stop).toBeNull();
  expect(sequences.steps).toBe(2_000);
  expect(matcher.push("99a")).toEqual({ text: "", stop: `${"a".repeat(140)}9` });
});

test("which are looked for here", () => {
  const five = ["1", "2", "3", "4", "5"];
  expect(stopsCutHere("messages", five)).toEqual([]);
  expect(stopsCutHere("chat", five.slice(1))).toEqual([]);
  expect(stopsCutHere("chat", five)).toEqual(five);
  expect(chatStops(five)).toEqual(["1", "2", "3", "4"]);
  // Nothing at all, and half a character, which no text holds.
  expect(stopsCutHere("responses", ["1", "", "\ud83d"])).toEqual(["1"]);
});
