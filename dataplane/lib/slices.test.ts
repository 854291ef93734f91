import fc from "fast-check";
import { expect, test } from "vitest";
import { Slices } from "./slices.ts";

test("a long list is sorted as Array sorts it, equal ones in their order", async () => {
  const numbers = fc.array(fc.integer({ min: 0, max: 50 }), { minLength: 0, maxLength: 5_000, size: "max" });
  await fc.assert(
    fc.asyncProperty(numbers, async (list) => {
      const placed = list.map((value, place) => ({ value, place }));
      const compare = (one: { value: number }, other: { value: number }) => one.value - other.value;
      expect(await new Slices(1).sorted(placed, compare)).toEqual(placed.toSorted(compare));
    }),
    { numRuns: 20 },
  );
});

test("others have their turns while a long list is worked through", async () => {
  let turns = 0;
  let isOver = false;
  const turn = () => {
    turns += 1;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  const slices = new Slices(0);
  const list = Array.from({ length: 3_000 }, (_, place) => -place);
  expect(await slices.map(list, (value) => value - 1)).toEqual(list.map((value) => value - 1));
  expect(turns).toBeGreaterThan(1_000);
  turns = 0;
  expect(await slices.sorted(list, (one, other) => one - other)).toEqual(list.toReversed());
  expect(turns).toBeGreaterThan(1_000);
  isOver = true;
});
