import { afterEach, expect, test, vi } from "vitest";
import { countMoved } from "./moved-bytes.ts";

const MIB = 1024 * 1024;

afterEach(() => {
  vi.unstubAllGlobals();
});

test("the young generation is collected once for each 8 MiB that moved, in whatever pieces", () => {
  const gc = vi.fn();
  vi.stubGlobal("gc", gc);
  for (let piece = 0; piece < 1024; piece += 1) countMoved(MIB / 16);
  expect(gc.mock.calls).toEqual(Array.from({ length: 8 }, () => [{ type: "minor" }]));
});

test("without the flag nothing is collected, and nothing fails", () => {
  vi.stubGlobal("gc", undefined);
  expect(() => countMoved(64 * MIB)).not.toThrow();
});
