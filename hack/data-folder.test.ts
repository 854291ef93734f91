import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { dataFolderFault } from "./data-folder.ts";

const folder = mkdtempSync(join(tmpdir(), "gapura-data-folder-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const plenty = () => 2 ** 40;

test("a folder that can be made and written is none to speak of, and holds nothing afterwards", () => {
  expect(dataFolderFault(join(folder, "a/b"), plenty)).toBeNull();
  expect(readdirSync(join(folder, "a/b"))).toEqual([]);
});

test("one that cannot be written is one sentence with the flag that helps", () => {
  writeFileSync(join(folder, "file"), "");
  expect(dataFolderFault(join(folder, "file/data"), plenty)).toBe(
    `${folder}/file/data cannot be written (ENOTDIR): choose a folder of your own with --data`,
  );
  // Nobody may make files here, root included.
  expect(dataFolderFault("/proc/1/gapura", plenty)).toMatch(
    /^\/proc\/1\/gapura cannot be written \(E\w+\): choose/,
  );
});

test("a full disk is told before Postgres meets it", () => {
  expect(dataFolderFault(join(folder, "c"), () => 12 * 1024 ** 2)).toBe(
    `only 12 MiB are free on the disk of ${folder}/c, and 300 MiB are needed: free some, or choose another folder with --data`,
  );
});
