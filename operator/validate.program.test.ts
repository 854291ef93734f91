import { spawnSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { faultLine, validateFolder } from "./validate.ts";

const root = resolve(import.meta.dirname, "..");
const golden = (name: string) => join("test", "golden", "compile", name);
/** @param from where the user stands: npm runs it in the repository all the same. */
const runFrom = (from: string, ...args: string[]) =>
  spawnSync(process.execPath, [join("operator", "validate.ts"), ...args], {
    cwd: root,
    encoding: "utf8",
    env: { ...process.env, INIT_CWD: from },
  });
const run = (...args: string[]) => runFrom(root, ...args);

// Programs that are started may take long beside the tests of a busy machine.
describe("npm run validate", { timeout: 60_000 }, () => {
  test("a good folder exits with 0, keys that will be generated included", async () => {
    for (const folder of [golden("every-field/input"), golden("defaults/input"), "hack/demo"]) {
      const { faults } = await validateFolder(join(root, folder));
      expect(faults.map(faultLine), folder).toEqual([]);
    }
    expect(run(golden("every-field/input"))).toMatchObject({
      status: 0,
      stdout: "4 objects in 5 files are valid\n",
    });
  });

  test("one object is told as one", async () => {
    const folder = await mkdtemp(join(tmpdir(), "gapura-validate-"));
    try {
      await writeFile(
        join(folder, "one.yaml"),
        "{apiVersion: gapura.dev/v1alpha1, kind: PriceTable, metadata: {name: default}, spec: {unit: USD}}\n",
      );
      expect(run(folder)).toMatchObject({ status: 0, stdout: "1 object in 1 file is valid\n" });
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test("each fault is one line with file, line, kind, name, path and reason, and the exit code is 1", () => {
    const { status, stdout } = run(golden("broken-file/step-3"));
    expect(status).toBe(1);
    expect(stdout.trim().split("\n")).toEqual([
      'test/golden/compile/broken-file/step-3/all.yaml:5 ModelRoute/in-file spec.model: PriceNotFound: PriceTable "default" is not in namespace "default"',
      "test/golden/compile/broken-file/step-3/all.yaml:13 Organisation/acme kind: Invalid: must be one of ModelRoute, ToolPolicy, PriceTable, Organization",
      "test/golden/compile/broken-file/step-3/prices.yaml:2 Unreadable: is not valid YAML: Flow sequence in block collection must be sufficiently indented and end with a ]",
    ]);
  });

  test("--format json says the same to programs", () => {
    const { status, stdout } = run(golden("documents/input"), "--format", "json");
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      objects: 8,
      files: 5,
      faults: expect.arrayContaining([
        expect.objectContaining({
          kind: "PriceTable",
          name: "top-level",
          path: "specs",
          reason: "Invalid",
          line: 36,
        }),
        // What stands around a spec has to be known too, as for a cluster.
        expect.objectContaining({ kind: "PriceTable", name: "metadata", path: "metadata.label", line: 60 }),
        expect.objectContaining({ kind: "Secret", namespace: "team", name: "half", path: "metadata.lables" }),
      ]),
    });
  });

  test("what is left out of a good object is a note beside the faults, and no fault", () => {
    const args = [golden("conflicts/step-2"), "--format", "json"];
    const { notes } = JSON.parse(run(...args).stdout) as {
      notes: readonly { name: string; message: string }[];
    };
    const note = expect.stringMatching(/^served without the alias "/);
    expect(notes).toContainEqual(expect.objectContaining({ kind: "ModelRoute", message: note }));
    const { status, stdout, stderr } = run(golden("every-field/input"));
    expect([status, stdout]).toEqual([0, "4 objects in 5 files are valid\n"]);
    expect(stderr).toMatch(
      /^test\S+toolpolicy\.yaml:\d+ ToolPolicy\/default Note: names of fetched pages are /m,
    );
  });

  test("a folder is meant from where the user stands, and its files are told from there", () => {
    expect(runFrom(join(root, "hack", "demo"), ".").stdout).toBe("6 objects in 4 files are valid\n");
    expect(runFrom(join(root, golden("broken-file")), "step-3").stdout).toMatch(/^step-3\/all\.yaml:5 /);
  });

  test("a folder without manifests is told and exits with 2, as a mistyped one has nothing to judge", async () => {
    const folder = await mkdtemp(join(tmpdir(), "gapura-validate-"));
    try {
      await writeFile(join(folder, "README.md"), "# Nothing here\n");
      for (const format of ["text", "json"])
        expect(run(folder, "--format", format)).toMatchObject({
          status: 2,
          stdout: "",
          stderr: `validate: there is no .yaml, .yml or .json file in ${folder}\n`,
        });
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test("a folder that is not there and a wrong option exit with 2", () => {
    expect(run("/nonexistent/folder")).toMatchObject({
      status: 2,
      stderr: "validate: there is no /nonexistent/folder\n",
    });
    expect(run(".", "--format", "xml").status).toBe(2);
    const { status, stderr } = run("--help");
    expect(status).toBe(2);
    expect(stderr).toContain("\nusage: npm run validate -- DIR");
  });
});
