import fc from "fast-check";
import { expect, test } from "vitest";
import { WaitingRows, type RowPack } from "./waiting-rows.ts";

/** Behind the version of the binary form. */
const textOf = (pack: RowPack | null, from?: number, to?: number) =>
  pack?.jsonb(from, to).toString("utf8", 1);

function takeAll(waiting: WaitingRows): unknown[][] {
  const taken: unknown[][] = [];
  for (let pack = waiting.first(); pack !== null; pack = waiting.first()) {
    taken.push(JSON.parse(textOf(pack) ?? ""));
    waiting.stored();
  }
  return taken;
}

test("whatever is added comes out in its order, once", () => {
  const row = fc.array(fc.string({ unit: "binary", maxLength: 40 }), { maxLength: 3 });
  fc.assert(
    fc.property(fc.array(row, { maxLength: 1_200, size: "max" }), (rows) => {
      const waiting = new WaitingRows();
      for (const one of rows) waiting.add(JSON.stringify(one));
      expect(waiting.rows).toBe(rows.length);
      const packs = takeAll(waiting);
      expect(packs.flat()).toEqual(rows);
      expect(Math.max(0, ...packs.map(({ length }) => length))).toBeLessThanOrEqual(500);
      expect(waiting.rows).toBe(0);
    }),
    { numRuns: 20 },
  );
});

test("what comes while the first rows are being stored waits behind them, and they wait on when that fails", () => {
  const waiting = new WaitingRows();
  waiting.add("1");
  const first = waiting.first();
  waiting.add("2");
  expect(textOf(first)).toBe("[1]");
  expect(waiting.first()).toBe(first);
  waiting.add("3");
  expect([waiting.rows, takeAll(waiting)]).toEqual([3, [[1], [2, 3]]]);
});

test("a long row has a pack with room for it, and a part of a pack is a list too", () => {
  const waiting = new WaitingRows();
  const long = JSON.stringify("é".repeat(300_000));
  for (const row of ["1", long, "2", "3"]) waiting.add(row);
  expect(takeAll(waiting)).toEqual([[1], [JSON.parse(long), 2, 3]]);
  for (const row of ["1", "2", "3"]) waiting.add(row);
  const pack = waiting.first();
  expect([textOf(pack, 0, 1), textOf(pack, 1, 3), textOf(pack)]).toEqual(["[1]", "[2,3]", "[1,2,3]"]);
});
