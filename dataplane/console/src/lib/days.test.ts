import { expect, test } from "vitest";
import { addDays, isDay } from "./days.ts";

test.for([
  ["2026-02-28", true],
  ["2026-02-29", false],
  ["1969-12-31", false],
  ["1970-01-01", true],
  ["9998-12-31", true],
  // Reports look a year ahead, and five digits sort before four: the parts of such a range had no end.
  ["9999-12-31", false],
  ["", false],
  [null, false],
] as const)("whether %s is a day that is asked for: %s", ([text, is]) => {
  expect(isDay(text)).toBe(is);
});

test("the last day that is asked for has a year of days behind it, each as long as others are written", () => {
  expect(addDays("9998-12-31", 365)).toBe("9999-12-31");
});
