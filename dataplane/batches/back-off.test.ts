import { expect, test } from "vitest";
import { BatchBackOff } from "./back-off.ts";

test("what failed rests, longer each time, up to a minute, until it goes well", () => {
  const backOff = new BatchBackOff();
  expect(backOff.ids(0)).toEqual([]);
  for (const restMs of [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]) {
    backOff.failed("a", 0);
    expect([backOff.ids(restMs - 1), backOff.ids(restMs)]).toEqual([["a"], []]);
  }
  backOff.wentWell("a");
  backOff.failed("a", 0);
  expect(backOff.ids(1_000)).toEqual([]);
});

test("it remembers a thousand", () => {
  const backOff = new BatchBackOff();
  for (let index = 0; index < 1_001; index += 1) backOff.failed(`b${index}`, 0);
  expect(backOff.ids(0)).toHaveLength(1_000);
  expect(backOff.ids(0)).not.toContain("b0");
});
