import fc from "fast-check";
import { expect, test } from "vitest";
import { micros, multiply } from "./decimal.ts";

test.for([
  ["3", "32", "96"],
  ["0.30", "32", "9.6"],
  ["0.1", "0.1", "0.01"],
  ["0", "32.5", "0"],
  ["0.000000000001", "0.000000000001", "0.000000000000000000000001"],
  ["999999999999.999999999999", "10", "9999999999999.99999999999"],
  ["-1.50", "2", "-3"],
] as const)("%s × %s = %s", ([one, other, product]) => {
  expect(multiply(one, other)).toBe(product);
});

test("a product of integers over powers of ten is exact", () => {
  fc.assert(
    fc.property(fc.bigInt(0n, 10n ** 20n), fc.bigInt(0n, 10n ** 20n), (one, other) => {
      const shifted = (value: bigint) => `${value / 1000n}.${(value % 1000n).toString().padStart(3, "0")}`;
      const [whole = "", fraction = ""] = multiply(shifted(one), shifted(other)).split(".");
      expect(BigInt(`${whole}${fraction.padEnd(6, "0")}`)).toBe(one * other);
    }),
  );
});

test.for([
  ["100000", 100_000_000_000n],
  ["0.000001", 1n],
  ["-12.5", -12_500_000n],
  ["9000000000", 9_000_000_000_000_000n],
] as const)("%s credits are %s micro-credits", ([text, value]) => {
  expect(micros(text)).toBe(value);
});
