import { expect, test } from "vitest";
import { growthPercent } from "./heap-growth.ts";

const MIB = 1024 * 1024;

test.each([
  { used: 20, percent: 100 },
  { used: 48, percent: 100 },
  { used: 60, percent: 80 },
  { used: 96, percent: 50 },
  { used: 160, percent: 30 },
  { used: 1_000, percent: 30 },
])("a heap that uses $used MiB may grow by $percent %", ({ used, percent }) => {
  expect(growthPercent(used * MIB)).toBe(percent);
});
