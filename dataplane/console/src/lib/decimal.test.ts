import fc from "fast-check";
import { expect, test } from "vitest";
import { compare, divide, formatDecimal, rupiahOf, subtract, sum } from "./decimal.ts";

const english = { group: ",", decimal: "." };
const micros = fc.bigInt({ min: -(10n ** 18n), max: 10n ** 18n });
const text = (units: bigint) => {
  const digits = (units < 0n ? -units : units).toString().padStart(7, "0");
  return `${units < 0n ? "-" : ""}${digits.slice(0, -6)}.${digits.slice(-6)}`;
};

test("sums and differences are those of micro-credits, whatever their size", () => {
  fc.assert(
    fc.property(micros, micros, (one, other) => {
      expect(compare(sum([text(one), text(other)]), text(one + other))).toBe(0);
      expect(compare(subtract(text(one), text(other)), text(one - other))).toBe(0);
      expect(Math.sign(compare(text(one), text(other)))).toBe(one < other ? -1 : Number(one > other));
    }),
  );
});

test.for([
  ["9007199254740993.000001", "9,007,199,254,740,993.000001"],
  ["1234.567891", "1,234.567891"],
  ["-1234567", "-1,234,567"],
  ["999", "999"],
  ["0.000001", "0.000001"],
])("%s is shown as %s", ([given = "", shown]) => {
  expect(formatDecimal(given, english)).toBe(shown);
});

test.for([
  ["0.000001", "0.0001"],
  ["12.34", "1234"],
  ["-0.5", "-50"],
  ["3", "300"],
])("%s credits are %s rupiah", ([credits = "", rupiah]) => {
  expect(rupiahOf(credits)).toBe(rupiah);
});

test.for([
  ["10", 3, 6, "3.333333"],
  ["20", 3, 6, "6.666667"],
  ["-20", 3, 6, "-6.666667"],
  ["0.0000005", 1, 6, "0.000001"],
] as const)("%s by %d is %s", ([given, by, scale, result]) => {
  expect(divide(given, by, scale)).toBe(result);
});

test("an empty sum is 0", () => {
  expect(sum([])).toBe("0");
});
