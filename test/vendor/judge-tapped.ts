/** Vitest's global set-up of the integration tests: at their end, all that they were answered is held to the vendors' types. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { vendorJudge } from "./judge.ts";
import { type Seen, shapeOf } from "./seen.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** The file in which what the gateway answered is gathered, a line for each shape that a test file saw. */
    readonly tappedAnswers: string;
  }
}

/** As many faults are told. */
const MOST_TOLD = 20;

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), "gapura-answers-"));
  const file = join(folder, "answers.jsonl");
  await writeFile(file, "");
  project.provide("tappedAnswers", file);
  return async () => {
    const lines = (await readFile(file, "utf8")).split("\n").filter((line) => line !== "");
    await rm(folder, { recursive: true, force: true });
    // Nothing is thrown: the stores have yet to be stopped.
    const faults = await judged(lines.map((line) => JSON.parse(line) as Seen)).catch((error: unknown) => [
      `they could not be judged: ${String(error)}`,
    ]);
    if (faults.length === 0) return;
    process.exitCode = 1;
    const told = faults.slice(0, MOST_TOLD).join("\n");
    process.stderr.write(`FAIL answers that do not fit the vendors' types:\n${told}\n`);
  };
}

/** What is wrong with them, with the first value of which it is true. */
async function judged(answers: readonly Seen[]): Promise<string[]> {
  if (answers.length === 0) return [];
  const judge = await vendorJudge();
  const begun = performance.now();
  const faults = new Map<string, string>();
  const shapes = new Set<string>();
  for (const { type, value } of answers) {
    const shape = `${type} ${shapeOf(value)}`;
    if (shapes.has(shape)) continue;
    shapes.add(shape);
    for (const fault of judge(type, value))
      if (!faults.has(fault)) faults.set(fault, `${fault}\n    in ${JSON.stringify(value).slice(0, 400)}`);
  }
  const ms = Math.round(performance.now() - begun);
  process.stderr.write(
    `vendors' types: ${shapes.size} shapes of answers judged in ${ms} ms, ${faults.size} faults\n`,
  );
  return [...faults.values()];
}
