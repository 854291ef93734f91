import { expect, test } from "vitest";
import { daysBetween } from "./days.ts";
import { costParts } from "./reports.ts";

test("a range that is longer than a report of costs is its parts, without a gap and without a day twice", () => {
  expect(costParts({ from: "2026-01-01", to: "2026-12-31" })).toEqual([
    { from: "2026-01-01", to: "2026-12-31" },
  ]);
  const parts = costParts({ from: "2025-10-20", to: "2026-11-23" });
  expect(parts).toEqual([
    { from: "2025-10-20", to: "2026-10-20" },
    { from: "2026-10-21", to: "2026-11-23" },
  ]);
  expect(parts.map(({ from, to }) => daysBetween(from, to))).toEqual([366, 34]);
});
