import { expect, test } from "vitest";
import { withinOneDay } from "./one-day.ts";

const clockAt = (text: string) => {
  const began = performance.now();
  return () => Date.parse(text) + Math.floor(performance.now() - began);
};

test("what would run into the next day begins in it", async () => {
  const clock = clockAt("2026-03-31T23:59:59.900Z");
  await withinOneDay(2_000, clock);
  expect(new Date(clock()).toISOString()).toMatch(/^2026-04-01T00:00:0/);
});

test("what ends before midnight begins at once", async () => {
  const clock = clockAt("2026-03-31T23:59:50.000Z");
  await withinOneDay(2_000, clock);
  expect(new Date(clock()).toISOString()).toMatch(/^2026-03-31T23:59:5/);
});
