/**
 * The house rules that a machine can check (design.md §3): which room may import which, who may read the
 * environment, who may do I/O or read a clock. Not style: oxlint and oxfmt do that.
 */
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { describe, expect, test } from "vitest";
import config from "../vitest.config.ts";
import { citationsOf, citingFiles, ruleNumbers } from "./citations.ts";

const root = resolve(import.meta.dirname, "..");

/** Rooms of the data plane from the top down; a room imports from those below it, and from itself. */
const layers: readonly (readonly string[])[] = [
  ["http"],
  ["batches"],
  ["inference"],
  ["loop"],
  ["identity"],
  ["requests", "notifications"],
  ["files", "billing", "reports"],
  ["tools", "upstream"],
  ["dialects", "tokens"],
  ["store"],
  ["config"],
  ["telemetry"],
  ["lib"],
  // The page in the browser: it knows the API's answers and nothing of the service.
  ["console"],
];
/** `tools` may use `upstream` (the Model engine calls a route); `reports` write amounts as `billing` does. */
const sideways: readonly (readonly [string, string])[] = [
  ["tools", "upstream"],
  ["reports", "billing"],
];

/** Rooms and parts of them, and the parts that they know nothing of. */
const apart: Readonly<Record<string, readonly string[]>> = {
  "dataplane/batches/create/": ["dataplane/batches/worker/"],
  "dataplane/batches/worker/": ["dataplane/batches/create/"],
  "dataplane/billing/prices/": ["dataplane/billing/ledger/", "dataplane/billing/holds/"],
  "dataplane/billing/ledger/": ["dataplane/billing/holds/"],
  // The seam is billing/meter.ts.
  "dataplane/inference/": ["dataplane/billing/holds/", "dataplane/billing/ledger/"],
  "dataplane/loop/": ["dataplane/billing/holds/", "dataplane/billing/ledger/"],
  "dataplane/inference/inspect/": ["request", "answer", "with-tools", "large", "upstream-refusals"].map(
    (part) => `dataplane/inference/${part}/`,
  ),
};

/** Folders all of whose files do no I/O and read no clock. */
const pureFolders = ["dataplane/dialects/", "operator/api/", "operator/plan/"];
/** What the first comment of any other such file says. `Pure, but …` names an exception, and is not held to it. */
const CALLED_PURE = /\bPure(?:[.:;]|, so that|, no I\/O| and )/;
/** Node's own modules that only compute. */
const computing = new Set([
  "node:assert",
  "node:buffer",
  "node:crypto",
  "node:path",
  "node:url",
  "node:util",
  "node:zlib",
]);

interface Import {
  readonly file: string;
  readonly specifier: string;
  /** Path from the root, for relative imports. */
  readonly target: string | null;
}

function sources(folder: string): string[] {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join("/"));
}

function importsOf(file: string): Import[] {
  const text = readFileSync(join(root, file), "utf8");
  const pattern = /^(?:import|export)\s+(?:type\s)?(?:[^"';]*?from\s+)?"([^"]+)"|\bimport\("([^"]+)"\)/gms;
  return Array.from(text.matchAll(pattern), (match) => {
    const specifier = match[1] ?? match[2] ?? "";
    const target = specifier.startsWith(".")
      ? relative(root, resolve(root, dirname(file), specifier))
          .split(sep)
          .join("/")
      : null;
    return { file, specifier, target };
  });
}

const isTest = (file: string) => /\.test\.tsx?$/.test(file);
/** Of the other projects: integration, operator, console, charts. */
const isWithStores = (file: string) =>
  /^test\/(integration|chaos|abuse|operator|console|charts)\//.test(file);
const program = [...sources("dataplane"), ...sources("operator")].filter((file) => !isTest(file));
const imports = program.flatMap(importsOf);

const room = (path: string) => path.split("/")[1] ?? "";
const level = (path: string) => layers.findIndex((layer) => layer.includes(room(path)));

describe("rooms", () => {
  test("every folder of the data plane is a known room", () => {
    const rooms = new Set(
      sources("dataplane")
        .filter((file) => file.split("/").length > 2)
        .map(room),
    );
    expect([...rooms].filter((name) => !layers.flat().includes(name))).toEqual([]);
  });

  test("imports in the data plane point down only", () => {
    const wrong = imports.filter(({ file, target }) => {
      if (target === null || !file.startsWith("dataplane/") || file.split("/").length === 2) return false;
      if (!target.startsWith("dataplane/")) return true;
      if (room(file) === room(target)) return false;
      if (sideways.some(([from, to]) => from === room(file) && to === room(target))) return false;
      return level(target) <= level(file);
    });
    expect(wrong.map(({ file, specifier }) => `${file} imports ${specifier}`)).toEqual([]);
  });

  test("parts that need not know each other do not", () => {
    const wrong = imports.filter(({ file, target }) =>
      Object.entries(apart).some(
        ([part, others]) => file.startsWith(part) && others.some((other) => target?.startsWith(other)),
      ),
    );
    for (const part of Object.keys(apart)) expect(program.some((file) => file.startsWith(part))).toBe(true);
    expect(wrong.map(({ file, specifier }) => `${file} imports ${specifier}`)).toEqual([]);
  });

  test("no file imports itself by way of others, not even for a type", () => {
    const arrows = imports.flatMap(({ file, target }) => (target === null ? [] : [{ file, target }]));
    // Whoever imports none of the files that are left, or is imported by none, is in no circle.
    let left = new Set(program);
    for (let before = 0; before !== left.size;) {
      before = left.size;
      const among = arrows.filter(({ file, target }) => left.has(file) && left.has(target));
      const importing = new Set(among.map(({ file }) => file));
      left = new Set(among.map(({ target }) => target).filter((target) => importing.has(target)));
    }
    expect([...left]).toEqual([]);
  });

  test("the operator takes nothing from the data plane but the contract, and the data plane nothing from the operator", () => {
    const wrong = imports.filter(({ file, target }) =>
      file.startsWith("operator/")
        ? target?.startsWith("dataplane/") === true && target !== "dataplane/config/schema.ts"
        : target?.startsWith("operator/") === true,
    );
    expect(wrong.map(({ file, specifier }) => `${file} imports ${specifier}`)).toEqual([]);
  });

  test("the console takes nothing from the service, which takes nothing from it", () => {
    const page = (path: string) => path.startsWith("dataplane/console/");
    const wrong = imports.filter(({ file, target }) => target !== null && page(file) !== page(target));
    expect(wrong.map(({ file, specifier }) => `${file} imports ${specifier}`)).toEqual([]);
  });

  test("no program imports from test or hack", () => {
    const wrong = imports.filter(
      ({ target }) => target?.startsWith("test/") === true || target?.startsWith("hack/") === true,
    );
    expect(wrong.map(({ file, specifier }) => `${file} imports ${specifier}`)).toEqual([]);
  });
});

describe("purity", () => {
  const firstComment = (file: string) =>
    /^\/\*\*.*?\*\//s.exec(readFileSync(join(root, file), "utf8"))?.[0].replaceAll(/\s+\*?\s*/g, " ") ?? "";
  const isPure = (file: string) =>
    pureFolders.some((folder) => file.startsWith(folder)) || CALLED_PURE.test(firstComment(file));

  test("files call themselves pure, and folders that are wholly pure are there", () => {
    for (const folder of pureFolders) expect(program.some((file) => file.startsWith(folder))).toBe(true);
    expect(program.filter((file) => CALLED_PURE.test(firstComment(file))).length).toBeGreaterThan(50);
  });

  test("pure code imports nothing that does I/O", () => {
    const wrong = imports.filter(
      ({ file, specifier }) => isPure(file) && specifier.startsWith("node:") && !computing.has(specifier),
    );
    expect(wrong.map(({ file, specifier }) => `${file} imports ${specifier}`)).toEqual([]);
  });

  test("pure code reads no clock and no chance", () => {
    const impure =
      /\bDate\.now\(|\bnew Date\(\)|\bperformance\.now\(|\bMath\.random\(|\brandomUUID\(|\brandomBytes\(|\bsetTimeout\(|\bfetch\(/;
    expect(
      program.filter((file) => isPure(file) && impure.test(readFileSync(join(root, file), "utf8"))),
    ).toEqual([]);
  });

  test("only a main.ts reads the environment", () => {
    const entry = /(^|\/)(main|validate)\.ts$/;
    expect(
      program.filter(
        (file) => !entry.test(file) && /\bprocess\.env\b/.test(readFileSync(join(root, file), "utf8")),
      ),
    ).toEqual([]);
  });
});

describe("words", () => {
  test("no pattern of a resource's field is told as an expression: each says in words what it wants", () => {
    const calls = program
      .filter((file) => file.startsWith("operator/api/"))
      .flatMap((file) => readFileSync(join(root, file), "utf8").split(".regex(").slice(1));
    expect(calls.length).toBeGreaterThan(15);
    // AMOUNT and NAME.message: operator/api/fields.test.ts. MODEL_PATTERN.message: limits.test.ts there.
    const worded = /["']must |AMOUNT|NAME\.message|MODEL_PATTERN\.message/;
    expect(calls.map((text) => text.slice(0, 260)).filter((text) => !worded.test(text))).toEqual([]);
  });
});

describe("names", () => {
  test("every test file is of one project, and so run by `npm test -- --all`", () => {
    const projects = (config.test?.projects ?? []) as readonly {
      readonly test: { readonly include: string[] };
    }[];
    const run = projects.flatMap(({ test: { include } }) => [...new Set(globSync(include, { cwd: root }))]);
    const all = ["dataplane", "operator", "hack", "test"].flatMap(sources).filter(isTest);
    expect(run.map((file) => file.split(sep).join("/")).toSorted()).toEqual(all.toSorted());
  });

  test("a unit test that replaces modules has a worker of its own", () => {
    const shared = ["dataplane", "operator", "hack", "test"]
      .flatMap(sources)
      .filter((file) => isTest(file) && !/\.(isolated|store)\.test\.ts$/.test(file));
    expect(
      shared.filter(
        (file) =>
          file !== "test/tidy.test.ts" &&
          !isWithStores(file) &&
          /\bvi\.(mock|doMock|stubGlobal|resetModules)\(/.test(readFileSync(join(root, file), "utf8")),
      ),
    ).toEqual([]);
  });

  test("a unit test that starts a program says so, or is heavy", () => {
    const starting = ["dataplane", "operator", "hack", "test"]
      .flatMap(sources)
      .filter(
        (file) => isTest(file) && !/\.(program|heavy|store)\.test\.ts$/.test(file) && !isWithStores(file),
      );
    expect(
      starting.filter((file) => /\bprocess\.execPath\b/.test(readFileSync(join(root, file), "utf8"))),
    ).toEqual([]);
  });

  test("an exported name means one thing in both programs", () => {
    const homes = new Map<string, string[]>();
    const declaration =
      /^export (?:declare )?(?:async )?(?:abstract )?(?:function\*?|const|let|class|interface|type) (\w+)/gm;
    // The console speaks the API's words, which name other things than the service's own.
    for (const file of program.filter((path) => room(path) !== "console"))
      for (const [, name = ""] of readFileSync(join(root, file), "utf8").matchAll(declaration))
        homes.set(name, [...new Set([...(homes.get(name) ?? []), file])]);
    expect(homes.size).toBeGreaterThan(1000);
    const twice = [...homes].filter(([, files]) => files.length > 1);
    expect(twice.map(([name, files]) => `${name}: ${files.join(", ")}`)).toEqual([]);
  });
});

describe("citations", () => {
  const all = citingFiles().flatMap(citationsOf);

  test("what is cited stands in this repository", () => {
    expect(all.length).toBeGreaterThan(500);
    const wrong = all.filter(({ found }) => !found);
    expect(wrong.map(({ file, text, page }) => `${file}: ${text} (${page})`)).toEqual([]);
  });

  test("rules are numbered without gaps, and none that code cites is called planned", () => {
    const { all: numbers, planned } = ruleNumbers();
    const last = new Map<string, number>();
    for (const number of numbers) {
      const [section = "", rule] = number.split(".");
      expect(Number(rule), `rule ${number}`).toBe((last.get(section) ?? 0) + 1);
      last.set(section, Number(rule));
    }
    const built = all.filter(
      ({ file, text }) => !file.startsWith("docs/") && planned.has(text.slice("rule ".length)),
    );
    expect(built.map(({ file, text }) => `${file} cites ${text}`)).toEqual([]);
  });

  test("nothing outside of the repository is cited", () => {
    const outside = /\bspec\.md\b|\(spec(, [A-Z]|; rule)|Sources?: spec\b|\/work\//;
    const wrong = citingFiles().filter(
      (file) => file !== "test/tidy.test.ts" && outside.test(readFileSync(join(root, file), "utf8")),
    );
    expect(wrong).toEqual([]);
  });
});
