import { readdirSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { constants, getPriority } from "node:os";
import { expect, test } from "vitest";
import { poolStepsBack } from "./step-back.ts";

test("the threads of the pool come after the one that serves", async () => {
  await readFile("/proc/self/stat");
  const own = getPriority(0);
  expect(poolStepsBack()).toBeGreaterThan(0);
  const named = readdirSync("/proc/self/task").filter((thread) =>
    readFileSync(`/proc/self/task/${thread}/comm`, "utf8").startsWith("libuv-worker"),
  );
  expect(named.map((thread) => getPriority(Number(thread)))).toEqual(
    named.map(() => constants.priority.PRIORITY_BELOW_NORMAL),
  );
  expect(getPriority(0)).toBe(own);
});
