/**
 * `npm run mutate [-- --every N] [FILE ...]`: changes a file at one place after the other, runs its tests (table.ts), and tells what
 * none of them noticed; of the changes every Nth. It works on a copy.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { createVitest } from "vitest/node";
import { describeMutant, type Mutant, mutantsOf, withMutant } from "./mutants.ts";
import { suites } from "./table.ts";

/** A change that makes a loop endless is noticed so. */
const TEST_MS = 10_000;

const { values, positionals } = parseArgs({
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
symlinkSync(resolve("node_modules"), join(copy, "node_modules"));
try {
  for (const file of files) await mutateFile(file);
} finally {
  rmSync(copy, { recursive: true, force: true });
}

/** With a runner of its own: what one file's runs leave behind is not told of the next. */
async function mutateFile(file: string): Promise<void> {
  const runner = await createVitest("test", {
    root: copy,
    project: ["unit"],
    watch: true,
    testTimeout: TEST_MS,
    reporters: [{}],
  });
  const path = join(copy, file);
  const code = readFileSync(path, "utf8");
  const specifications = await runner.globTestSpecifications([...(suites[file] ?? [])]);
  const passes = async (mutant: Mutant | null): Promise<boolean> => {
    writeFileSync(path, mutant === null ? code : withMutant(code, mutant));
    runner.invalidateFile(path);
    const { testModules, unhandledErrors } = await runner.runTestSpecifications(specifications);
    // What was run before for another file is told again.
    const own = new Set(specifications.map(({ moduleId }) => moduleId));
    const judged = testModules.filter(({ moduleId }) => own.has(moduleId));
    const passed = judged.filter((module) => module.state() === "passed");
    return passed.length === own.size && unhandledErrors.length === 0;
  };
  if (!(await passes(null))) throw new Error(`the tests of ${file} fail as it is`);
  const mutants = mutantsOf(code).filter((_, index) => index % every === 0);
  let survived = 0;
  for (const mutant of mutants) {
    if (!(await passes(mutant))) continue;
    survived += 1;
    console.log(describeMutant(file, code, mutant));
  }
  writeFileSync(path, code);
  await runner.close();
  console.log(`${file}: ${mutants.length - survived} of ${mutants.length} noticed\n`);
}
