import { expect, test } from "vitest";
import { seeded } from "../abuse/bodies.ts";
import { grows, slopeOf } from "./slope.ts";

/** Every three minutes. */
const line = (count: number, value: (hours: number, index: number) => number) =>
  Array.from({ length: count }, (_, index) => ({ hours: index / 20, value: value(index / 20, index) }));

test("the slope of a line is its slope, without error", () => {
  const { perHour, error, mean, span } = slopeOf(line(5, (hours) => 100 + 40 * hours));
  expect(perHour).toBeCloseTo(40, 6);
  expect(error).toBeCloseTo(0, 6);
  expect(mean).toBeCloseTo(104, 6);
  expect(span).toBeCloseTo(0.2, 6);
});

test("a leak is noticed through noise", () => {
  const random = seeded(1);
  expect(
    grows(
      line(12, (hours) => 100 + 100 * hours + 6 * random()),
      10,
    ),
  ).toBe(true);
});

test("noise alone is no leak, nor is a slope that makes less than noise, nor what shrinks", () => {
  for (let seed = 1; seed <= 50; seed += 1) {
    const random = seeded(seed);
    expect(
      grows(
        line(8, () => 100 + 30 * random()),
        20,
      ),
    ).toBe(false);
  }
  expect(
    grows(
      line(12, (hours) => 100 + 10 * hours),
      10,
    ),
  ).toBe(false);
  expect(
    grows(
      line(12, (hours) => 100 - 100 * hours),
      10,
    ),
  ).toBe(false);
});

test("too few points tell nothing", () => {
  expect(
    grows(
      line(3, (hours) => 1_000 * hours),
      1,
    ),
  ).toBe(false);
  expect(slopeOf([])).toMatchObject({ points: 0, perHour: 0, error: 0 });
});
