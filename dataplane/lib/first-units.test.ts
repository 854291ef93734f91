import { expect, test } from "vitest";
import { firstUnits } from "./first-units.ts";

test.each([
  ["abc", 3, "abc"],
  ["abc", 2, "ab"],
  ["a😀b", 3, "a😀"],
  ["a😀b", 2, "a"],
  ["😀", 1, ""],
  ["abc", 0, ""],
])("%j within %i is %j", (text, most, expected) => {
  expect(firstUnits(text, most)).toBe(expected);
});
