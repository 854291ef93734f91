import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { inTime } from "./in-time.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());
const late = () => new Error("late");

test("work that ends in time is what it is, and leaves no timer", async () => {
  expect(await inTime(1_000, Promise.resolve(7), late)).toBe(7);
  await expect(inTime(1_000, Promise.reject(new Error("broken")), late)).rejects.toThrow("broken");
  expect(vi.getTimerCount()).toBe(0);
});

test("work that takes longer is given up, and may fail later without being heard", async () => {
  const { promise, reject } = Promise.withResolvers<never>();
  const given = inTime(1_000, promise, late).catch((error: unknown) => error);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await given).toEqual(late());
  reject(new Error("much later"));
  await vi.advanceTimersByTimeAsync(0);
});
