import { expect, test } from "vitest";
import { isUpTo } from "./stream-position.ts";

test("entries are ordered by their milliseconds, then by their sequence, as numbers", () => {
  expect(isUpTo("9-0", "10-0")).toBe(true);
  expect(isUpTo("10-9", "10-10")).toBe(true);
  expect(isUpTo("10-10", "10-10")).toBe(true);
  expect(isUpTo("10-10", "10-9")).toBe(false);
  expect(isUpTo("1790000000123-0", "1790000000122-7")).toBe(false);
  const parts = [0, 1, 9, 10, 11, 99, 100, 1_790_000_000_123];
  const ids = parts.flatMap((ms) => parts.map((sequence) => [ms, sequence] as const));
  for (const [ms, sequence] of ids)
    for (const [otherMs, otherSequence] of ids)
      expect(isUpTo(`${ms}-${sequence}`, `${otherMs}-${otherSequence}`)).toBe(
        ms < otherMs || (ms === otherMs && sequence <= otherSequence),
      );
});
