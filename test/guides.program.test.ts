/** What people copy out of the guides: every YAML example is taken by the operator or the charts, JSON and shell can be read. */
import { spawnSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Ajv } from "ajv";
import { expect, test } from "vitest";
import { parse, parseAllDocuments, stringify } from "yaml";
import { faultLine, validateFolder } from "../operator/validate.ts";

const root = resolve(import.meta.dirname, "..");
const pages = ["README.md", "CONTRIBUTING.md", ...globSync("docs/**/*.md", { cwd: root }).toSorted()];

interface Example {
  /** `docs/tools.md:23`. */
  readonly place: string;
  readonly text: string;
}

function examplesOf(language: string): readonly Example[] {
  return pages.flatMap((file) => {
    const page = readFileSync(join(root, file), "utf8");
    const blocks = page.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"));
    return Array.from(blocks, ({ index, 1: text = "" }) => ({
      place: `${file}:${page.slice(0, index).split("\n").length}`,
      text,
    }));
  });
}

type Fields = Readonly<Record<string, unknown>>;
const documentsOf = ({ text }: Example): readonly Fields[] =>
  parseAllDocuments(text, { strict: true }).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as Fields;
  });
const isOurs = ({ apiVersion }: Fields) => apiVersion === "gapura.dev/v1alpha1";

const yaml = examplesOf("yaml").map((example) => ({ ...example, documents: documentsOf(example) }));
const values = parse(readFileSync(join(root, "charts/gapura/values.yaml"), "utf8")) as Fields;
const schema = JSON.parse(readFileSync(join(root, "charts/gapura/values.schema.json"), "utf8")) as Fields;
const organization = { apiVersion: "gapura.dev/v1alpha1", kind: "Organization", metadata: { name: "acme" } };

/** References that an example leaves to what stands around it. */
const UNRESOLVED = new Set(["SecretNotFound", "PriceNotFound", "ToolPolicyNotFound"]);

async function faultsOf(text: string): Promise<readonly string[]> {
  const folder = await mkdtemp(join(tmpdir(), "gapura-guides-"));
  try {
    await writeFile(join(folder, "example.yaml"), text);
    const { faults, objects } = await validateFolder(folder);
    expect(objects).toBeGreaterThan(0);
    return faults.filter(({ reason }) => !UNRESOLVED.has(reason)).map(faultLine);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** The identity that a page declares whole, of which a later example shows a part. */
const identityBefore = (place: string): unknown =>
  yaml
    .filter((other) => other.place.split(":")[0] === place.split(":")[0])
    .flatMap(({ documents }) => documents)
    .map(({ spec }) => (spec as Fields | undefined)?.["identity"])
    .find((identity) => identity !== undefined);

const merged = (base: unknown, over: unknown): unknown =>
  typeof base === "object" && typeof over === "object" && base && over && !Array.isArray(over)
    ? {
        ...base,
        ...Object.fromEntries(
          Object.entries(over).map(([key, value]) => [key, merged((base as Fields)[key], value)]),
        ),
      }
    : over;

test("every YAML example", async () => {
  const judged = { ours: 0, organization: 0, values: 0, others: [] as string[] };
  const isValues = new Ajv({ strict: false, allErrors: true }).compile(schema);
  for (const { place, text, documents } of yaml) {
    const [first = {}] = documents;
    if (documents.some(isOurs)) {
      judged.ours++;
      expect(await faultsOf(text), place).toEqual([]);
    } else if ("identity" in first || "apiKeys" in first || "notifications" in first) {
      judged.organization++;
      const identity = merged(identityBefore(place), first["identity"]);
      const spec = {
        projects: [{ name: "research" }],
        ...first,
        ...(identity === undefined ? {} : { identity }),
      };
      expect(await faultsOf(stringify({ ...organization, spec })), place).toEqual([]);
    } else if (Object.keys(first).every((key) => key in values)) {
      judged.values++;
      isValues(merged(values, first));
      expect(isValues.errors ?? [], place).toEqual([]);
    } else judged.others.push(...documents.map(({ kind }) => String(kind)));
  }
  expect(judged).toMatchObject({ ours: 8, organization: 4, values: 3 });
  // Kinds of the cluster and of other programs, and a part of a Pod.
  expect(judged.others).toContain("ValidatingAdmissionPolicy");
  expect(judged.others.filter((kind) => kind === "undefined")).toHaveLength(1);
});

test("every JSON example", () => {
  const examples = examplesOf("json");
  expect(examples.length).toBeGreaterThan(10);
  // Results of batches are lines.
  for (const { place, text } of examples)
    for (const json of text.startsWith('{"custom_id"') ? text.trim().split("\n") : [text])
      expect(() => JSON.parse(json) as unknown, place).not.toThrow();
});

test("every shell example", () => {
  const examples = examplesOf("sh");
  expect(examples.length).toBeGreaterThan(30);
  for (const { place, text } of examples)
    expect([place, spawnSync("bash", ["-n"], { input: text, encoding: "utf8" }).stderr]).toEqual([place, ""]);
});

test("Helm finds a release in the namespace that a guide installs it into", () => {
  const namespaces = new Map<string, Set<string>>();
  for (const { text } of examplesOf("sh"))
    for (const [command, release = ""] of text
      .replaceAll("\\\n", " ")
      .matchAll(/^helm (?:install|upgrade) (\S+) .*$/gm)) {
      const namespace = / (?:-n|--namespace) (\S+)/.exec(command)?.[1] ?? "that of the context";
      namespaces.set(release, (namespaces.get(release) ?? new Set()).add(namespace));
    }
  expect(namespaces).toEqual(
    new Map([
      ["gapura-crds", new Set(["gapura"])],
      ["gapura", new Set(["gapura"])],
    ]),
  );
});
