import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { watchForSurprises } from "./surprises.ts";

/** What is told of a program that runs this. */
async function toldOf(script: string): Promise<string[]> {
  const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "pipe"] });
  const told: string[] = [];
  watchForSurprises(child, "it", ({ message }) => told.push(message));
  await once(child, "close");
  return told;
}

test.each([
  ["a rejection that nobody hears of", `Promise.reject(new Error("Command timed out"))`, "Command timed out"],
  ["an exception", `setImmediate(() => { throw new Error("oh") })`, "oh"],
  [
    "a data plane that says so",
    `console.log(JSON.stringify({ level: "fatal", err: "late", msg: "unexpected error" })); process.exit(1)`,
    "unexpected error",
  ],
])("%s is told", async (_what, script, words) => {
  expect(await toldOf(script)).toEqual([expect.stringContaining(words)]);
});

test.each([
  ["an end as it should be", `console.log("done")`],
  ["an end for a reason that was told", `console.error("gapura: DATABASE_URL is missing"); process.exit(1)`],
  ["a kill", `process.kill(process.pid, "SIGKILL")`],
])("%s is not", async (_what, script) => {
  expect(await toldOf(script)).toEqual([]);
});
