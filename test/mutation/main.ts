/**
 * `npm run mutate [-- --every N] [FILE ...]`: changes a file at one place after the other, runs its tests (table.ts), and tells what
 * none of them noticed; of the changes every Nth. It works on a copy.
 */
import { type ChildProcess, fork } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join, resolve as absolute } from "node:path";
import { flagsOrEnd } from "../../hack/flags-or-end.ts";
import { describeMutant, mutantsOf, withMutant } from "./mutants.ts";
import { suites } from "./table.ts";

/** Tests that take so much longer than those of the file as it is have noticed the change: a loop without end, mostly. */
const LONGER_MS = 10_000;

const { values, positionals } = flagsOrEnd("usage: npm run mutate -- [--every N] [FILE ...]", {
  allowPositionals: true,
  options: { every: { type: "string", default: "1" } },
});
const every = Number(values.every);
const files = positionals.length === 0 ? Object.keys(suites) : positionals;
const unknown = files.filter((file) => !(file in suites));
if (!Number.isInteger(every) || every < 1) {
  console.error("--every: not a whole number from 1");
  process.exit(2);
}
if (unknown.length > 0) {
  console.error(`no tests are named for ${unknown.join(", ")} in test/mutation/table.ts`);
  process.exit(2);
}

/** Of what the tests of table.ts read. */
const NOT_COPIED = new Set(["node_modules", ".git"]);
const copy = mkdtempSync(join(tmpdir(), "gapura-mutation-"));
cpSync(".", copy, { recursive: true, filter: (path) => !NOT_COPIED.has(path) });
symlinkSync(absolute("node_modules"), join(copy, "node_modules"));
let running: ChildProcess | null = null;
const tidyUp = () => {
  if (running !== null) end(running);
  rmSync(copy, { recursive: true, force: true });
};
// A group of its own hears nothing of ours, and what loops in it would do so for ever.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.once(signal, () => {
    tidyUp();
    process.exit(128 + constants.signals[signal]);
  });
try {
  for (const file of files) await mutateFile(file);
} finally {
  tidyUp();
}

async function mutateFile(file: string): Promise<void> {
  const path = join(copy, file);
  const code = readFileSync(path, "utf8");
  let runner = startRunner(file);
  const passes = async (text: string, withinMs: number | null): Promise<boolean> => {
    writeFileSync(path, text);
    const passed = await ask(runner, withinMs);
    if (passed !== null) return passed;
    end(runner);
    runner = startRunner(file);
    return false;
  };
  const started = performance.now();
  if (!(await passes(code, null))) throw new Error(`the tests of ${file} fail as it is`);
  // With the start of the runner, as after a kill.
  const withinMs = performance.now() - started + LONGER_MS;
  const mutants = mutantsOf(code).filter((_, index) => index % every === 0);
  let survived = 0;
  for (const mutant of mutants) {
    if (!(await passes(withMutant(code, mutant), withinMs))) continue;
    survived += 1;
    console.log(describeMutant(file, code, mutant));
  }
  writeFileSync(path, code);
  end(runner);
  console.log(`${file}: ${mutants.length - survived} of ${mutants.length} noticed\n`);
}

/** One a file: what its runs leave behind is not told of the next. A group of processes, to be killed as one. */
function startRunner(file: string): ChildProcess {
  const program = join(import.meta.dirname, "runner.ts");
  running = fork(program, [copy, file, ...(suites[file] ?? [])], { detached: true });
  return running;
}

function end({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // It has ended by itself.
  }
}

/** Whether the tests pass; null: no answer in time, or none any more. */
async function ask(runner: ChildProcess, withinMs: number | null): Promise<boolean | null> {
  const { promise, resolve } = Promise.withResolvers<boolean | null>();
  const timer = withinMs === null ? undefined : setTimeout(resolve, withinMs, null);
  runner.once("message", resolve);
  runner.once("exit", () => resolve(null));
  runner.send("run");
  const passed = await promise;
  clearTimeout(timer);
  runner.removeAllListeners();
  return passed;
}
