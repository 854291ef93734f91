/** A program that grows is named, and one that only breathes is not. */
import { expect, test } from "vitest";
import type { Sample } from "./probe.ts";
import { judgeSamples, tellSamples } from "./samples.ts";
import type { Life } from "./world.ts";

const MB = 1024 * 1024;
const lifeOf = (name: string) => ({ name, bornAt: 0 }) as Life;

/** Every two minutes of a life. */
const samplesOf = (life: Life, change: (minute: number) => Partial<Sample>): Sample[] =>
  Array.from({ length: 10 }, (_, index) => ({
    life,
    at: index * 120_000,
    heap: 60 * MB,
    resident: 300 * MB,
    descriptors: 60 + (index % 3),
    timers: 30 - (index % 2),
    handles: 30,
    ...change(index * 2),
  }));

test("nothing is said of programs that stay as they are, nor of how they fill up at first", () => {
  const young = samplesOf(lifeOf("a"), (minute) => (minute === 0 ? { heap: 20 * MB, timers: 5 } : {}));
  expect(judgeSamples([...young, ...samplesOf(lifeOf("b"), () => ({}))])).toEqual([]);
});

test.each([
  ["heap MB", (minute: number) => ({ heap: (60 + 3 * minute) * MB })],
  ["resident MB", (minute: number) => ({ resident: (300 + 5 * minute) * MB })],
  ["descriptors", (minute: number) => ({ descriptors: 60 + 2 * minute })],
  ["timers", (minute: number) => ({ timers: 30 + 4 * minute })],
  ["handles", (minute: number) => ({ handles: 30 + 2 * minute })],
])("a life whose %s grow is named, and no other", (name, change) => {
  const samples = [
    ...samplesOf(lifeOf("data plane a"), change),
    ...samplesOf(lifeOf("operator"), () => ({})),
  ];
  const breaches = judgeSamples(samples);
  expect(breaches).toHaveLength(1);
  expect(breaches[0]).toMatch(new RegExp(`^${name} of data plane a grow`));
});

test("each measure of a life is told, once there are three points of it", () => {
  expect(tellSamples(samplesOf(lifeOf("a"), () => ({})))).toHaveLength(5);
  expect(tellSamples(samplesOf(lifeOf("a"), () => ({})).slice(0, 3))).toEqual([]);
});
