import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { Ajv } from "ajv";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { customResourceDefinition, type JsonSchema, manifestJsonSchema } from "../operator/api/crd.ts";
import { KINDS } from "../operator/api/kinds.ts";
import { objectTable } from "../test/operator/object-table.ts";
import { everyGeneratedFile, readExamples } from "./generate.ts";

const root = resolve(import.meta.dirname, "..");
const examples = await readExamples();

test.for(await everyGeneratedFile())("%s is what `npm run generate` writes", async ([path, content]) => {
  expect(await readFile(join(root, path), "utf8")).toBe(content);
});

test("no guide sends anybody to a file that is generated, whose changes would be lost", async () => {
  // Written by hand but for one table.
  const partly = ["docs/tools.md", "docs/conformance.md"];
  const generated = (await everyGeneratedFile())
    .map(([path]) => path)
    .filter((path) => !partly.includes(path));
  for (const guide of ["README.md", "CONTRIBUTING.md"]) {
    const text = await readFile(join(root, guide), "utf8");
    expect(generated.filter((path) => text.includes(`\`${path}\``))).toEqual([]);
  }
});

/** Every schema node below the root, with its path. */
function nodes(schema: JsonSchema, path: string): { path: string; schema: JsonSchema }[] {
  const inner = Object.entries((schema["properties"] ?? {}) as Record<string, JsonSchema>).flatMap(
    ([name, value]) => nodes(value, `${path}.${name}`),
  );
  const items = schema["items"] === undefined ? [] : nodes(schema["items"] as JsonSchema, `${path}[]`);
  return [{ path, schema }, ...inner, ...items];
}

describe.each(KINDS)("the CRD of %s", (kind) => {
  const definition = customResourceDefinition(kind) as unknown as {
    spec: {
      versions: { schema: { openAPIV3Schema: { properties: Record<"spec" | "status", JsonSchema> } } }[];
    };
  };
  const { spec, status } = definition.spec.versions[0]!.schema.openAPIV3Schema.properties;
  const all = [...nodes(spec, "spec"), ...nodes(status, "status")];

  test("describes every field", () => {
    const silent = all.filter(
      ({ path, schema }) => !path.endsWith("[]") && typeof schema["description"] !== "string",
    );
    expect(silent.map(({ path }) => path)).toEqual([]);
  });

  test("has no default in its spec and no field that YAML 1.1 reads as a boolean", () => {
    const inSpec = all.filter(({ path }) => path.startsWith("spec"));
    expect(inSpec.filter(({ schema }) => "default" in schema)).toEqual([]);
    expect(inSpec.filter(({ path }) => /\.(on|off|yes|no)$/.test(path))).toEqual([]);
  });

  test("merges every list of objects by a key and bounds every list, string and map", () => {
    const lists = all.filter(({ schema }) => schema["type"] === "array");
    for (const { path, schema } of lists) {
      expect(schema["maxItems"], path).toBeTypeOf("number");
      const objects = (schema["items"] as JsonSchema)["type"] === "object";
      // Rules have no names: their order is what they mean.
      const merges = path.endsWith(".identity.rules") ? "atomic" : objects ? "map" : "set";
      expect(schema["x-kubernetes-list-type"], path).toBe(merges);
    }
    const free = all.filter(
      ({ schema }) =>
        (schema["type"] === "string" && schema["enum"] === undefined && schema["maxLength"] === undefined) ||
        (schema["additionalProperties"] !== undefined && schema["maxProperties"] === undefined),
    );
    expect(free.map(({ path }) => path)).toEqual([]);
  });
});

test.for(KINDS)("the JSON schema of %s takes the manifest with every field", (kind) => {
  const validate = new Ajv({ strict: false }).compile(manifestJsonSchema(kind));
  expect(validate(parse(examples[kind] ?? "")), JSON.stringify(validate.errors)).toBe(true);
});

test("the JSON schemas refuse unknown fields and take every good object", () => {
  const ajv = new Ajv({ strict: false });
  const validators = new Map(KINDS.map((kind) => [kind, ajv.compile(manifestJsonSchema(kind))]));
  const whole = (kind: string, spec: unknown) => ({
    apiVersion: "gapura.dev/v1alpha1",
    kind,
    metadata: { name: "row" },
    spec,
  });
  const judged = objectTable.map((row) => ({
    ...row,
    valid: validators.get(row.kind)?.(whole(row.kind, row.spec)),
  }));
  // null counts as absent for the API server; an editor may well say that it is odd.
  const good = judged.filter(({ verdict, title }) => verdict === "good" && !title.startsWith("null"));
  expect(good.filter(({ valid }) => valid !== true).map(({ title }) => title)).toEqual([]);
  const unknown = judged.filter(({ says }) => says?.source.includes("unknown field"));
  expect(unknown.map(({ valid }) => valid)).toEqual(unknown.map(() => false));
});
