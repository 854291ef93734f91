import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ChangePace } from "./change-pace.ts";

let rounds: number[];
let pace: ChangePace;
/** Since the test began. */
let begun: number;
beforeEach(() => {
  vi.useFakeTimers();
  begun = performance.now();
  rounds = [];
  pace = new ChangePace(() => {
    // As the operator does: a round begins, and finds all that is there.
    pace.roundBegins();
    rounds.push(performance.now() - begun);
  });
});
afterEach(() => {
  vi.useRealTimers();
});
const pass = async (ms: number, each: () => void = () => {}) => {
  for (let gone = 0; gone < ms; gone += 50) {
    each();
    await vi.advanceTimersByTimeAsync(50);
  }
};

test("a namespace that changes without pause leads to ten rounds at once and then to one every other second", async () => {
  await pass(60_000, () => pace.changed("evil"));
  expect(rounds.filter((at) => at < 1_000)).toHaveLength(10);
  const later = rounds.filter((at) => at >= 2_000);
  expect(later.length).toBeGreaterThanOrEqual(28);
  expect(later.length).toBeLessThanOrEqual(30);
});

test("another namespace's change leads to a round at once, and that one takes in what waited", async () => {
  await pass(2_000, () => pace.changed("evil"));
  const before = rounds.length;
  pace.changed("evil");
  expect(rounds).toHaveLength(before);
  pace.changed("good");
  expect(rounds).toHaveLength(before + 1);
  await pass(10_000);
  expect(rounds, "nothing is left to be found").toHaveLength(before + 1);
});

test("the last change of a row is never lost", async () => {
  await pass(2_000, () => pace.changed("evil"));
  const before = rounds.length;
  pace.changed("evil");
  await pass(2_000);
  expect(rounds).toHaveLength(before + 1);
});

test.for([
  [20_000, 10],
  [10_000, 5],
] as const)("after a rest of %i ms %i count at once", async ([rest, atOnce]) => {
  await pass(2_000, () => pace.changed("evil"));
  await pass(rest);
  rounds = [];
  await pass(1_000, () => pace.changed("evil"));
  expect(rounds).toHaveLength(atOnce);
});

test("thousands of namespaces in turn each have their own", () => {
  for (let round = 0; round < 2; round += 1)
    for (let index = 0; index < 3000; index += 1) pace.changed(`namespace-${index}`);
  expect(rounds).toHaveLength(6000);
});
