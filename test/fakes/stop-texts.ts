/** Texts and stop sequences that overlap, repeat, and begin alike, and what becomes of them. */
import fc from "fast-check";
import type { CutText } from "../../dataplane/dialects/stop-sequences.ts";

/** What the rule says, place by place: the first end of a sequence, and of those that end there the longest. */
export function plainCut(text: string, stops: readonly string[]): CutText {
  for (let end = 1; end <= text.length; end += 1) {
    const here = stops.filter((stop) => text.slice(0, end).endsWith(stop));
    const stop = here.sort((one, other) => other.length - one.length)[0];
    if (stop !== undefined) return { text: text.slice(0, end - stop.length), stop };
  }
  return { text, stop: null };
}

/** Cut anywhere, between the halves of a pair and into nothing at all too. */
export const chunked = (text: fc.Arbitrary<string>): fc.Arbitrary<string[]> =>
  text.chain((whole) =>
    fc.array(fc.integer({ min: 0, max: whole.length }), { maxLength: 12 }).map((cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), whole.length];
      return at.slice(1).map((end, index) => whole.slice(at[index], end));
    }),
  );

/** Few letters make overlaps, repetitions and prefixes of each other; the others are pairs and joined characters. */
export const stopAlphabets = {
  overlaps: ["a", "b"],
  unicode: ["😀", "😁", "👩‍🚀", "é", "漢", "a"],
  // The same first or second half of a pair.
  pairs: ["\u{1F600}", "\u{1F601}", "\u{10600}", "\u{1F200}", "x"],
  lines: ["\n", "\n\n", "END", "E", "N", "D", " "],
};
export const words = (
  letters: readonly string[],
  minLength: number,
  maxLength: number,
): fc.Arbitrary<string> =>
  fc.array(fc.constantFrom(...letters), { minLength, maxLength }).map((some) => some.join(""));
