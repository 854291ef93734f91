/**
 * `runner.ts COPY FILE TEST ...`, a program of its own, because a loop without end in a changed FILE is only ended by
 * killing all that runs it: answers each message with whether FILE's tests pass as it stands now.
 */
import { join } from "node:path";
import { createVitest } from "vitest/node";

const [copy = "", file = "", ...tests] = process.argv.slice(2);
const starting = createVitest("test", {
  root: copy,
  project: ["unit"],
  watch: true,
  testTimeout: 10_000,
  reporters: [{}],
});
process.on("message", () => void pass().then((passed) => process.send?.(passed)));
process.on("disconnect", () => process.exit());

async function pass(): Promise<boolean> {
  const runner = await starting;
  const specifications = await runner.globTestSpecifications(tests);
  runner.invalidateFile(join(copy, file));
  const { testModules, unhandledErrors } = await runner.runTestSpecifications(specifications);
  const passed = testModules.filter((module) => module.state() === "passed");
  return passed.length === specifications.length && unhandledErrors.length === 0;
}
