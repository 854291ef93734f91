import { expect, test } from "vitest";
import { firstUnits, shortened } from "./first-units.ts";

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

test.each([
  ["abc", 3, "abc"],
  ["abcd", 3, "ab…"],
  ["a😀bc", 3, "a…"],
])("%j shortened to %i is %j", (text, limit, expected) => {
  expect(shortened(text, limit)).toBe(expected);
});
