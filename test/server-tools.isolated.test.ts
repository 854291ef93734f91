/**
 * One row of the catalogue is all that a version of a server tool needs (the checklist in README.md).
 * Here each tool gets one more version in each dialect, and everything that reads the catalogue has to know it.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, test, vi } from "vitest";
import type * as Catalogue from "../dataplane/dialects/server-tools.ts";
import { serverToolNames } from "../dataplane/dialects/find-server-tool.ts";
import { serverTools } from "../dataplane/dialects/server-tools.ts";
import { withServerTools } from "../dataplane/dialects/server-tools-page.ts";
import { openApiDocument } from "../dataplane/http/openapi/document.ts";
import { checkServerTools, declaredServerTools, refuse } from "../dataplane/inference/request/refuse.ts";
import { toolFunctions } from "../dataplane/loop/tool-functions.ts";
import { toolCapabilities } from "../dataplane/tools/capabilities.ts";
import { readDeclarations } from "../dataplane/tools/declarations.ts";
import { routeTo, toolPolicy } from "./fakes/inference.ts";
import { lookAt } from "./fakes/look-at.ts";

/** What the catalogue holds without the versions that are added here. */
const written = await vi.importActual<typeof Catalogue>("../dataplane/dialects/server-tools.ts");
vi.mock("../dataplane/dialects/server-tools.ts", async (original) => {
  const { serverTools: rows } = await original<typeof Catalogue>();
  const further = Object.entries(rows).map(([name, row]) => [
    name,
    {
      ...row,
      messages: [...row.messages, `${name}_20990101`],
      responses: row.responses.length === 0 ? [] : [...row.responses, `${name}_2099_01_01`],
    },
  ]);
  return { serverTools: Object.fromEntries(further) as typeof rows };
});

const root = resolve(import.meta.dirname, "..");
const declarations = serverToolNames.flatMap((name) =>
  (["messages", "responses"] as const).flatMap((dialect) =>
    serverTools[name][dialect].map((type) => ({ name, dialect, type })),
  ),
);

test("the catalogue was given a further version of each tool", () => {
  expect(serverTools).not.toEqual(written.serverTools);
  expect(declarations.map(({ type }) => type)).toContain("x_search_20990101");
  expect(new Set(declarations.map(({ dialect, type }) => `${dialect} ${type}`)).size).toBe(
    declarations.length,
  );
});

describe.each(declarations)("$type in $dialect", ({ name, dialect, type }) => {
  const route = routeTo([]);
  const { key } = serverTools[name];
  const tool = { type, ...(dialect === "messages" ? { name } : {}) };
  const seen = lookAt(dialect, { tools: [tool] });

  test("is not refused, and declares its tool", () => {
    refuse(seen);
    expect([...declaredServerTools(seen).keys()]).toEqual([name]);
    expect(readDeclarations(dialect, { tools: [tool] }, true)[key]).not.toBeNull();
  });

  test("may be declared where the policy has the tool, and only there", () => {
    expect(toolCapabilities(route, toolPolicy)[name]).toBe(true);
    checkServerTools(seen, route, toolPolicy);
    const without = { ...toolPolicy, [key]: null };
    expect(toolCapabilities(route, without)[name]).toBe(false);
    expect(() => checkServerTools(seen, route, without)).toThrow(/not available for this model/);
  });

  test("stands in the API's description and in the documentation's table", () => {
    expect(JSON.stringify(openApiDocument())).toContain(type);
    expect(withServerTools(readFileSync(join(root, "docs/tools.md"), "utf8"))).toContain(`\`${type}\``);
  });
});

test.each(serverToolNames)("%s: capability, function and Chat's declaration", (name) => {
  const row = serverTools[name];
  const { schemas } = openApiDocument()["components"] as {
    schemas: Record<string, { properties: Record<string, { properties?: object }> }>;
  };
  expect(schemas["Model"]?.properties["capabilities"]?.properties).toHaveProperty(name);
  expect(toolFunctions[name].name).toBe(name);
  if (row.chatField === null) return;
  const seen = lookAt("chat", { [row.chatField]: {} });
  expect([...declaredServerTools(seen).keys()]).toEqual([name]);
});

test("service.md names every version", () => {
  const page = readFileSync(join(root, "docs/reference/service.md"), "utf8");
  const rows = Object.values(written.serverTools);
  const all = rows.flatMap(({ messages, responses }) => [...messages, ...responses]);
  expect(all.filter((type) => !page.includes(`\`${type}\``))).toEqual([]);
});

test("no other file of the program writes a version", () => {
  const dated = Object.values(written.serverTools)
    .flatMap(({ messages, responses }) => [...messages, ...responses])
    .filter((type) => /\d/.test(type));
  const files = ["dataplane", "operator"].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
      .map((file) => join(folder, file))
      // The console is a client: it declares one version, as any client does, and takes nothing from the service.
      .filter((file) => !file.startsWith("dataplane/console/")),
  );
  expect(dated.length).toBeGreaterThan(5);
  const writers = files.filter((file) => {
    const text = readFileSync(join(root, file), "utf8");
    return dated.some((type) => text.includes(type));
  });
  expect(writers).toEqual(["dataplane/dialects/server-tools.ts"]);
});

describe("README's checklist", () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const checklist = /### Checklist: add a server tool\n([^]*?)\n###? /.exec(readme)?.[1] ?? "";
  /** Each file named, with the identifiers in parentheses after it. */
  const named = Array.from(checklist.matchAll(/`(\w[\w./-]*\/[\w.-]*)`(?: \(((?:`\w+`(?:, )?)+)\))?/g)).map(
    ([, file = "", words = ""]) => ({
      file,
      words: Array.from(words.matchAll(/`(\w+)`/g), ([, word]) => word!),
    }),
  );

  test("names the catalogue", () => {
    expect(named.map(({ file }) => file)).toContain("dataplane/dialects/server-tools.ts");
    expect(named.length).toBeGreaterThan(12);
  });

  test.each(named)("$file has $words", ({ file, words }) => {
    expect(existsSync(join(root, file)), file).toBe(true);
    if (words.length === 0) return;
    const text = readFileSync(join(root, file), "utf8");
    for (const word of words) expect(text).toMatch(new RegExp(`\\b${word}\\b`));
  });
});
