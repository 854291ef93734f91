/** Records in `run.json` what runs on a data folder, so that a start that was killed leaves nothing that blocks the next one. */
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { Say } from "./cache.ts";
import { isRunning, signalAll } from "./processes.ts";

const runSchema = z.object({
  /** Process id of `npm start`. */
  start: z.number().int(),
  /** Process ids by the program's file, such as `dataplane/main.ts`. */
  programs: z.record(z.string(), z.number().int()),
});
type Run = z.infer<typeof runSchema>;

/** A start that is ending gets this long before its folder counts as taken. */
const LEAVING_MS = 8_000;

const pathOf = (folder: string) => join(folder, "run.json");

/** Writes the record whole: no other start reads half of it. */
export function writeRun(folder: string, run: Run): void {
  const draft = `${pathOf(folder)}.draft`;
  writeFileSync(draft, JSON.stringify(run));
  renameSync(draft, pathOf(folder));
}

/** Removes the record: nothing runs on the folder any more. */
export function removeRun(folder: string): void {
  rmSync(pathOf(folder), { force: true });
}

/**
 * Takes the folder over: ends the programs that a killed start left behind.
 * @throws Error when another start runs on it and does not end.
 */
export async function takeOver(folder: string, say: Say): Promise<void> {
  let run = readRun(folder);
  if (run !== null && isProgram(run.start, "hack/start.ts") && run.start !== process.pid) {
    say(`waiting for another start on ${folder} (process ${run.start}) to end`);
    const { start } = run;
    await ends(start, LEAVING_MS);
    if (isRunning(start)) {
      throw new Error(
        `another start is running on ${folder} (process ${start}): end it, or choose another folder with --data`,
      );
    }
    run = readRun(folder);
  }
  for (const [program, pid] of Object.entries(run?.programs ?? {})) {
    if (!isProgram(pid, program)) continue;
    say(`ending ${program} (process ${pid}), which an earlier run left behind`);
    signalAll([pid], "SIGTERM");
    await ends(pid, 3_000);
    if (isRunning(pid)) signalAll([pid], "SIGKILL");
    await ends(pid, 3_000);
  }
  removeRun(folder);
}

function readRun(folder: string): Run | null {
  try {
    return runSchema.parse(JSON.parse(readFileSync(pathOf(folder), "utf8")));
  } catch {
    return null;
  }
}

/** Whether the process runs this program: process ids are used again. */
function isProgram(pid: number, program: string): boolean {
  if (!isRunning(pid)) return false;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(program);
  } catch {
    // No /proc: believe the file.
    return true;
  }
}

async function ends(pid: number, withinMs: number): Promise<void> {
  const deadline = Date.now() + withinMs;
  while (isRunning(pid) && Date.now() < deadline) await sleep(25);
}
