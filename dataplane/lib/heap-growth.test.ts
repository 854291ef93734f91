import { expect, test } from "vitest";
import { growthPercent } from "./heap-growth.ts";

const MIB = 1024 * 1024;

test.each([
  { live: 20, percent: 100 },
  { live: 48, percent: 100 },
  { live: 60, percent: 80 },
  { live: 96, percent: 50 },
  { live: 160, percent: 30 },
  { live: 1_000, percent: 30 },
])("a heap of $live MiB may grow by $percent %", ({ live, percent }) => {
  expect(growthPercent(live * MIB)).toBe(percent);
});
