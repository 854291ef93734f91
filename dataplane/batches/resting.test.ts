import { expect, test } from "vitest";
import { Resting } from "./resting.ts";

test("what failed rests, longer each time, up to a minute, until it goes well", () => {
  const resting = new Resting();
  expect(resting.ids(0)).toEqual([]);
  for (const restMs of [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]) {
    resting.failed("a", 0);
    expect([resting.ids(restMs - 1), resting.ids(restMs)]).toEqual([["a"], []]);
  }
  resting.wentWell("a");
  resting.failed("a", 0);
  expect(resting.ids(1_000)).toEqual([]);
});

test("it remembers a thousand", () => {
  const resting = new Resting();
  for (let index = 0; index < 1_001; index += 1) resting.failed(`b${index}`, 0);
  expect(resting.ids(0)).toHaveLength(1_000);
  expect(resting.ids(0)).not.toContain("b0");
});
