import fc from "fast-check";
import { expect, test } from "vitest";
import { MAX_MICROS, creditsText, parseCredits } from "./credits.ts";

test.each([
  [0n, "0"],
  [1n, "0.000001"],
  [-1n, "-0.000001"],
  [5_000_000n, "5"],
  [-1_234_567n, "-1.234567"],
  [320_000n, "0.32"],
])("%s micro-credits read as %s", (micros, text) => {
  expect(creditsText(micros)).toBe(text);
});

test.each(["", "1e3", "1.0000001", "0x10", "1,5", " 1", "1.", ".5", "NaN", "9000000000.000001", "--1"])(
  "%j is no amount",
  (text) => {
    expect(parseCredits(text)).toBe(null);
  },
);

test("text and micro-credits are each other's reverse", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -MAX_MICROS, max: MAX_MICROS }), (micros) => {
      expect(parseCredits(creditsText(micros))).toBe(micros);
    }),
  );
});
