import { expect, test } from "vitest";
import { TokenBucket } from "./token-bucket.ts";

test("a bucket gives what it holds at once, and then what flows in", () => {
  const bucket = new TokenBucket(10, 3, 0);
  expect([1, 2, 3].map(() => bucket.take(1, 0))).toEqual([0, 0, 0]);
  expect(bucket.take(1, 0)).toBe(100);
  expect(bucket.take(1, 60)).toBeCloseTo(40);
  expect(bucket.take(1, 100)).toBe(0);
  expect(bucket.level(60_000)).toBe(3);
});

test("what flows in is counted from the last look at the clock, whatever that showed at first", () => {
  const bucket = new TokenBucket(10, 3, 1_000);
  expect(bucket.take(3, 1_000)).toBe(0);
  expect([1_100, 1_200, 1_200].map((now) => bucket.level(now))).toEqual([1, 2, 2]);
});

test("more than it holds goes when it is full, and is made up for afterwards", () => {
  const bucket = new TokenBucket(10, 5, 0);
  expect(bucket.take(20, 0)).toBe(0);
  expect(bucket.take(1, 0)).toBe(1600);
  expect(bucket.take(1, 1600)).toBe(0);
});

test("tokens may be spent before they are there", () => {
  const bucket = new TokenBucket(10, 5, 0);
  bucket.spend(6, 0);
  expect(bucket.take(1, 0)).toBe(200);
});

test("a clock that goes back takes nothing away", () => {
  const bucket = new TokenBucket(10, 5, 1000);
  expect(bucket.take(5, 0)).toBe(0);
  expect(bucket.level(0)).toBe(0);
});
