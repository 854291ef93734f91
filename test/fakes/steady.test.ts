import { execFileSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { standstillMs, whileSteady } from "./steady.ts";

test("a run in which the thread stood still is made again", async () => {
  let runs = 0;
  await whileSteady(400, async () => {
    runs += 1;
    await sleep(20);
    if (runs === 1) execFileSync("sleep", ["0.6"]);
    await sleep(20);
  });
  expect(runs).toBeGreaterThan(1);
});

test("also one in which it stood still by and by", async () => {
  let runs = 0;
  await whileSteady(600, async () => {
    runs += 1;
    for (let left = runs === 1 ? 5 : 0; left > 0; left -= 1) {
      execFileSync("sleep", ["0.1"]);
      await sleep(15);
    }
  });
  expect(runs).toBeGreaterThan(1);
});

test("a thread that computes for as long is no excuse", () => {
  expect(standstillMs(612, 602)).toBe(0);
  expect(standstillMs(612, 2)).toBe(600);
});
