import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { atMost } from "./at-most.ts";

test("at most so many at a time, results in item order, whoever is done takes the next", async () => {
  const gates = [0, 1, 2, 3, 4].map(() => Promise.withResolvers<string>());
  const begun: number[] = [];
  const results = atMost(2, [0, 1, 2, 3, 4], (item) => {
    begun.push(item);
    return gates[item]?.promise ?? Promise.reject(new Error("no gate"));
  });
  expect(begun).toEqual([0, 1]);
  // The first one keeps its place; all others pass through the second.
  for (const item of [1, 2, 3, 4]) {
    gates[item]?.resolve(`r${item}`);
    await turn();
  }
  expect(begun).toEqual([0, 1, 2, 3, 4]);
  gates[0]?.resolve("r0");
  expect(await Promise.all(results)).toEqual(["r0", "r1", "r2", "r3", "r4"]);
});

test("a failure is its own item's, thrown or rejected, and the others go on", async () => {
  const results = atMost(1, ["reject", "throw", "fine"], (item) => {
    if (item === "throw") throw new Error(item);
    return item === "reject" ? Promise.reject(new Error(item)) : Promise.resolve(item);
  });
  await turn();
  expect((await Promise.allSettled(results)).map(({ status }) => status)).toEqual([
    "rejected",
    "rejected",
    "fulfilled",
  ]);
});

test("nothing to do, and a limit below one", async () => {
  expect(atMost(4, [], () => Promise.resolve(1))).toEqual([]);
  expect(await Promise.all(atMost(0, [1], (item) => Promise.resolve(item)))).toEqual([1]);
});
