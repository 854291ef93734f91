import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { programEnvironment } from "../fakes/program-environment.ts";
import { expect, onTestFinished, test } from "vitest";

const files = {
  "package.json": JSON.stringify({ type: "module" }),
  "vitest.config.ts": `export default { test: { projects: [{ test: { name: "unit", include: ["*.test.ts"] } }] } };`,
  // Turned to `-=` the loop has no end; the change after it, which no test notices, is judged all the same.
  "count.ts": `export function count(to: number): number {
  let at = 0;
  while (at < to) at += 1;
  return at;
}
`,
  "count.test.ts": `import { expect, test } from "vitest";
import { count } from "./count.ts";
test("counts to an even number", () => {
  expect(count(4)).toBe(4);
});
`,
  "test/mutation/table.ts": `export const suites = { "count.ts": ["count.test.ts"] };`,
};

/** What `npm run mutate` consists of. */
const PROGRAM = [
  ...["main.ts", "runner.ts", "mutants.ts"].map((name) => join("test/mutation", name)),
  "hack/flags-or-end.ts",
  "dataplane/lib/command-arguments.ts",
];

test("a change that makes a loop endless is noticed, and those after it are judged", async () => {
  const world = mkdtempSync(join(tmpdir(), "gapura-endless-"));
  onTestFinished(() => rmSync(world, { recursive: true, force: true }));
  const [folder, temporary] = [join(world, "program"), join(world, "tmp")];
  mkdirSync(temporary);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  for (const file of PROGRAM) cpSync(file, join(folder, file));
  symlinkSync(resolve("node_modules"), join(folder, "node_modules"));

  const { stdout } = await promisify(execFile)(process.execPath, ["test/mutation/main.ts"], {
    cwd: folder,
    env: { ...programEnvironment(), TMPDIR: temporary },
    timeout: 50_000,
    killSignal: "SIGKILL",
  });

  expect(stdout.trim().split("\n")).toEqual([
    "count.ts:2: 0 -> 1   in: let at = 0;",
    "count.ts:3: 1 -> 2   in: while (at < to) at += 1;",
    "count.ts: 2 of 4 noticed",
  ]);
});
