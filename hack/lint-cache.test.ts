import { mkdtempSync, rmSync, writeFileSync, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { LintCache, lintDigests } from "./lint-cache.ts";

const texts = {
  "a/top.ts": 'import { middle } from "./middle.ts";\n',
  "a/middle.ts": 'export { low } from "../b/low.ts";\nexport type One = import("../b/one.ts").One;\n',
  "b/low.ts": 'const later = () => import("./ring.ts");\n',
  "b/ring.ts": "import '../b/low.ts';\n",
  "b/one.ts": "export type One = 1;\n",
  "b/alone.ts": "export const alone = 1;\n",
};

/** The files whose digest is another one. */
function changed(to: Record<string, string>, ofAll: readonly string[] = ["rules"]) {
  const before = lintDigests(new Map(Object.entries(texts)), ["rules"]);
  const after = lintDigests(new Map(Object.entries({ ...texts, ...to })), ofAll);
  return [...after].filter(([path, digest]) => before.get(path) !== digest).map(([path]) => path);
}

test("a file is judged again when anything changed that it reaches, and only then", () => {
  expect(changed({})).toEqual([]);
  expect(changed({ "b/alone.ts": "export const alone = 2;\n" })).toEqual(["b/alone.ts"]);
  expect(changed({ "b/one.ts": "export type One = 2;\n" })).toEqual(["a/middle.ts", "a/top.ts", "b/one.ts"]);
  expect(changed({ "b/ring.ts": "import '../b/low.ts';\n\n" })).toEqual([
    "a/middle.ts",
    "a/top.ts",
    "b/low.ts",
    "b/ring.ts",
  ]);
  expect(changed({ "a/top.ts": "" })).toEqual(["a/top.ts"]);
});

test("every file is judged again when the rules changed, or what is declared for all", () => {
  const all = Object.keys(texts).toSorted();
  expect(changed({}, ["other rules"])).toEqual(all);
  expect(changed({ "c.ts": 'declare module "fastify" {}\n' })).toEqual([...all, "c.ts"]);
  expect(changed({ "c.d.ts": "interface Window {}\n" })).toEqual([...all, "c.d.ts"]);
});

test("a file that appears is seen by those that named it before", () => {
  const before = lintDigests(new Map([["a.ts", 'import "./b.ts";']]), []);
  const after = lintDigests(
    new Map([
      ["a.ts", 'import "./b.ts";'],
      ["b.ts", ""],
    ]),
    [],
  );
  expect(after.get("a.ts")).not.toBe(before.get("a.ts"));
});

test("what was found good is not judged again, until it changes", () => {
  const root = mkdtempSync(join(tmpdir(), "gapura-lint-"));
  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  try {
    for (const path of [".oxlintrc.json", "package.json", "package-lock.json", "tsconfig.json"])
      write(path, "{}");
    write("dataplane/console/src/tsconfig.json", "{}");
    write("a.ts", 'import "./b.ts";');
    write("b.ts", 'import one from "./one.json" with { type: "json" };');
    write("one.json", "1");
    const cache = () => new LintCache(root, ["a.ts", "b.ts"]);
    const first = cache();
    expect(first.unjudged()).toEqual(["a.ts", "b.ts"]);
    // Changed while it was being judged: what was found good is what was read before.
    write("a.ts", 'import "./b.ts";\n');
    first.keep();
    expect(cache().unjudged()).toEqual(["a.ts"]);
    cache().keep();
    expect(cache().unjudged()).toEqual([]);
    // It is not judged itself.
    write("one.json", "[]");
    expect(cache().unjudged()).toEqual(["a.ts", "b.ts"]);
    cache().keep();
    write(".oxlintrc.json", '{"rules":{}}');
    expect(cache().unjudged()).toEqual(["a.ts", "b.ts"]);
    write("node_modules/.cache/lint.json", "broken");
    expect(cache().unjudged()).toEqual(["a.ts", "b.ts"]);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
