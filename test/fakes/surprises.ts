/**
 * Programs that tests start must not end by themselves because something escaped: such an end, which other processes
 * make good, would pass unseen. Nor may they outlive tests that are killed. Whoever starts one has it watched here.
 */
import type { ChildProcess } from "node:child_process";
import { endWithUs } from "../../hack/reaper.ts";

/** The last of what a program printed. */
const MOST_KEPT = 64 * 1024;
/** A fatal line of our log (main.ts: what nobody caught), and what Node itself says of it. */
const surprise = /"level":(?:60|"fatal")|UnhandledPromiseRejection|triggerUncaughtException|^Node\.js v\d+/m;

/** What escaped in a program that printed this; null: nothing. */
function surpriseIn(output: string): string | null {
  const found = surprise.exec(output);
  return found === null ? null : output.slice(Math.max(0, found.index - 2_000), found.index + 2_000);
}

/**
 * Fails the run of tests when something escaped in this program, once it has ended. Its output must be piped. It ends with us.
 * `fail`: as an error that nobody catches, which vitest counts against the file whose test saw it.
 */
export function watchForSurprises(
  child: ChildProcess,
  name: string,
  fail: (error: Error) => void = (error) => {
    throw error;
  },
): void {
  endWithUs(child, "SIGTERM");
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (bytes: Buffer) => {
      output = (output + bytes.toString()).slice(-MOST_KEPT);
    });
  }
  child.once("close", () => {
    const found = surpriseIn(output);
    if (found !== null) fail(new Error(`${name} ended by itself:\n${found}`));
  });
}
