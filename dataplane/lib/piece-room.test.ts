import { expect, test } from "vitest";
import { pieceLimits, PieceRoom } from "./piece-room.ts";

const { bytes, bytesOfOne, smallBytes } = pieceLimits;
const MiB = 1024 * 1024;
const downloads = (room: PieceRoom, owner: string, count: number) =>
  Array.from({ length: count }, () => room.open(owner));
/** The sizes of the pieces that they get when each asks for one. */
const sizes = (held: ReturnType<typeof downloads>) => held.map((one) => one.next(MiB));

test("a few downloads get whole pieces, many small ones, and one organization leaves room for others", () => {
  const room = new PieceRoom();
  const few = downloads(room, "org_a", 8);
  expect(new Set(sizes(few))).toEqual(new Set([MiB]));
  // The next piece takes the place of the one before.
  expect(new Set(sizes(few))).toEqual(new Set([MiB]));
  const many = sizes(downloads(room, "org_a", 1_000));
  expect(many.at(-1)).toBe(smallBytes);
  expect(room.bytes).toBeLessThanOrEqual(bytesOfOne);
  expect(sizes(downloads(room, "org_b", 1))).toEqual([MiB]);
  for (let n = 0; n < 100; n += 1) sizes(downloads(room, `org_${n}`, 100));
  expect(room.bytes).toBeLessThanOrEqual(bytes);
});

test("what ends gives its room back, once", () => {
  const room = new PieceRoom();
  const all = downloads(room, "org_a", 1_000);
  sizes(all);
  for (const one of all) one.release();
  for (const one of all) one.release();
  expect(room.bytes).toBe(0);
  expect(sizes(downloads(room, "org_a", 1))).toEqual([MiB]);
});

test("a piece is no larger than what is left to read", () => {
  expect(new PieceRoom().open("org_a").next(5)).toBe(5);
});
