/**
 * `npm run generate`: writes the CRDs, the JSON schemas and docs/configuration.md from operator/api, docs/dialects.md
 * from the field table of the dialects, the table in docs/tools.md from the
 * catalogue of server tools, the one in docs/conformance.md from the checks, the types of the console's client, and the charts' READMEs, schemas and copies of the CRDs.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { chartFiles } from "./chart-files.ts";
import { consoleTypes } from "./console-types.ts";
import { dialectsPage } from "../dataplane/dialects/dialects-page.ts";
import { withServerTools } from "../dataplane/dialects/server-tools-page.ts";
import { generatedFiles } from "../operator/api/generated.ts";
import { KINDS } from "../operator/api/kinds.ts";
import { withChecks } from "../test/conformance/page.ts";

const root = resolve(import.meta.dirname, "..");

/** One complete manifest of each kind; the golden tests compile the same files. */
export async function readExamples(): Promise<Record<string, string>> {
  const folder = join(root, "test", "golden", "compile", "every-field", "input");
  const entries = KINDS.map(async (kind) => [
    kind,
    await readFile(join(folder, `${kind.toLowerCase()}.yaml`), "utf8"),
  ]);
  return Object.fromEntries(await Promise.all(entries)) as Record<string, string>;
}

/** Every generated file: its path from the root, and its text. */
export async function everyGeneratedFile(): Promise<(readonly [string, string])[]> {
  const fromApi = [...generatedFiles(await readExamples())];
  const tools = withServerTools(await readFile(join(root, "docs", "tools.md"), "utf8"));
  return [
    ...fromApi,
    ["docs/dialects.md", dialectsPage()],
    ["docs/tools.md", tools],
    ["docs/conformance.md", withChecks(await readFile(join(root, "docs", "conformance.md"), "utf8"))],
    consoleTypes(),
    ...chartFiles(fromApi),
  ];
}

if (import.meta.main)
  for (const [path, content] of await everyGeneratedFile()) {
    const target = join(root, path);
    await mkdir(dirname(target), { recursive: true });
    await writeFile(target, content);
    console.log(path);
  }
