import fc from "fast-check";
import { expect, test } from "vitest";
import { MOMENT, momentMicros } from "./moment.ts";

test.each([
  ["1970-01-01T00:00:00Z", 0n],
  ["1970-01-01T00:00:00.000001Z", 1n],
  ["1970-01-01T07:00:00.5+07:00", 500_000n],
  ["1969-12-31T19:30:01-04:30", 1_000_000n],
  ["2028-02-29T00:00:00Z", 1_835_395_200_000_000n],
  ["2027-02-29T00:00:00Z", null],
  ["2027-13-01T00:00:00Z", null],
  ["2027-01-01T24:00:00Z", null],
  ["2027-01-01T00:00:00+24:00", null],
  ["2027-01-01T00:00:00+07:60", null],
  ["9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999n],
  // In UTC a moment of the year 10000, which the API server refuses.
  ["9999-12-31T23:59:59-01:00", null],
])("%s", (text, micros) => {
  expect(MOMENT.test(text)).toBe(true);
  expect(momentMicros(text)).toBe(micros);
});

test("every moment that a clock shows is read as it is, to the microsecond", () => {
  const days = fc.date({ min: new Date(0), max: new Date("9999-01-01T00:00:00Z"), noInvalidDate: true });
  fc.assert(
    fc.property(days, fc.nat(999), (date, micros) => {
      const text = `${date.toISOString().slice(0, -1)}${String(micros).padStart(3, "0")}Z`;
      expect(momentMicros(text)).toBe(BigInt(date.getTime()) * 1000n + BigInt(micros));
    }),
  );
});
