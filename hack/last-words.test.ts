import * as fs from "node:fs";
import { join } from "node:path";
import { tmpdir } from "node:os";
import { afterAll, expect, test } from "vitest";
import { lastWords } from "./last-words.ts";

const folder = fs.mkdtempSync(join(tmpdir(), "gapura-last-words-"));
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

test("the last five lines of a log, whole ones alone", () => {
  const log = join(folder, "log");
  expect(lastWords(log)).toEqual([]);
  fs.writeFileSync(log, "");
  expect(lastWords(log)).toEqual([]);
  fs.writeFileSync(log, "one\n\ntwo\n");
  expect(lastWords(log)).toEqual(["one", "two"]);
  fs.writeFileSync(log, ["1", "2", "3", "4", "5", "6"].join("\n"));
  expect(lastWords(log)).toEqual(["2", "3", "4", "5", "6"]);
  // What began before the last 4 KiB is left out.
  fs.writeFileSync(log, `${"x".repeat(5_000)}\nthe end\n`);
  expect(lastWords(log)).toEqual(["the end"]);
});
