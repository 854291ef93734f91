/** Random mutations of good manifests: never a crash, every refusal has a path, what is served stays whole. */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { routingSchema } from "../dataplane/config/schema.ts";
import { KINDS } from "./api/kinds.ts";
import { linesOf, parseFile, type Manifest } from "./folder/parse.ts";
import { compile } from "./plan/compile.ts";
import { type Declared, reference, type Verdict } from "./plan/objects.ts";
import { runs } from "../test/fakes/runs.ts";

const folder = resolve(import.meta.dirname, "..", "test", "golden", "compile", "every-field", "input");
const texts = [...KINDS.map((kind) => kind.toLowerCase()), "secrets"].map((name) =>
  readFileSync(join(folder, `${name}.yaml`), "utf8"),
);
const files = texts.map((text) => parseFile(text));
const secrets = new Map(
  files.flatMap((file) => file.secrets).map((secret) => [reference(secret), secret.data]),
);
const manifests = files.flatMap((file) => file.manifests);

const declared = (manifest: Manifest, spec: unknown, generation: number): Declared => ({
  ...manifest,
  uid: `uid-${manifest.kind}`,
  generation,
  createdAt: 0,
  spec,
});
const good = compile({
  objects: manifests.map((one) => declared(one, one.spec, 1)),
  secrets,
  published: null,
});
const published = { routing: { ...good.routing, serial: 1 }, credentials: good.credentials };

const value = fc.oneof(
  { weight: 3, arbitrary: fc.jsonValue({ maxDepth: 2 }) },
  fc.constantFrom<unknown>(
    null,
    "",
    "*",
    "0",
    "-1",
    "1e9",
    "../..",
    "__proto__",
    -1,
    0,
    2 ** 53,
    1e308,
    [],
    {},
    true,
  ),
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.constantFrom<unknown>(
    "a".repeat(10_000),
    "\u0000",
    "\ud800",
    "http://[",
    "https://a.example/v1",
    "::/0",
    "169.254.1.1/32",
  ),
);
const mutation = fc.record({
  object: fc.nat(manifests.length - 1),
  steps: fc.array(fc.nat(30), { maxLength: 6 }),
  how: fc.constantFrom<"set" | "delete" | "add" | "repeat" | "nest">(
    "set",
    "set",
    "delete",
    "add",
    "repeat",
    "nest",
  ),
  key: fc.oneof(
    fc.string({ maxLength: 8 }),
    fc.constantFrom("__proto__", "constructor", "toString", "name", "x y"),
  ),
  value,
});
type Mutation = typeof mutation extends fc.Arbitrary<infer T> ? T : never;

/** A copy of the spec with one thing in it changed. */
function mutate(spec: unknown, { steps, how, key, value: replacement }: Mutation): unknown {
  const change = (node: unknown, depth: number): unknown => {
    const step = steps[depth];
    if (typeof node !== "object" || node === null || step === undefined) return replaced(node);
    const keys = Object.keys(node);
    const chosen = keys[step % Math.max(1, keys.length)];
    if (chosen === undefined) return replaced(node);
    const inner = change((node as Record<string, unknown>)[chosen], depth + 1);
    if (Array.isArray(node)) {
      const items = node.map((item: unknown, index) => (String(index) === chosen ? inner : item));
      return how === "repeat" ? [...items, ...items] : items;
    }
    const entries = Object.entries(node).filter(
      ([name]) => how !== "delete" || name !== chosen || depth + 1 < steps.length,
    );
    return Object.fromEntries(entries.map(([name, old]) => [name, name === chosen ? inner : old]));
  };
  const replaced = (node: unknown): unknown => {
    if (how === "add" && typeof node === "object" && node !== null && !Array.isArray(node))
      return Object.defineProperty({ ...node }, key, { value: replacement, enumerable: true });
    if (how === "nest") return { [key]: node };
    return how === "set" ? replacement : node;
  };
  return change(spec, 0);
}

/** The laws that hold for every input. */
function judge(verdicts: readonly Verdict[], routing: unknown): void {
  for (const { accepted, resolved } of verdicts)
    for (const { path, message, reason } of [...accepted, ...resolved]) {
      expect(path, `${reason}: ${message}`).toMatch(/^spec/);
      expect(message).not.toBe("");
    }
  expect(routingSchema.safeParse(routing).error).toBeUndefined();
}

describe("random mutations", () => {
  test("of specs never crash the compiler, are refused with a path, and leave everything served", () => {
    fc.assert(
      fc.property(mutation, (change) => {
        const objects = manifests.map((one, index) =>
          index === change.object ? declared(one, mutate(one.spec, change), 2) : declared(one, one.spec, 1),
        );
        const { verdicts, routing, credentials } = compile({ objects, secrets, published });
        judge(verdicts, { ...routing, serial: 2 });
        expect(
          [routing.routes, Object.keys(routing.policies), routing.organizations].map(({ length }) => length),
        ).toEqual([1, 1, 1]);
        for (const upstream of routing.routes[0]?.upstreams ?? [])
          expect(upstream.credential === null || credentials[upstream.credential.id] !== undefined).toBe(
            true,
          );
      }),
      { numRuns: runs(8000) },
    );
  }, 60_000);

  test("of texts never crash the reader, and each fault has a line inside the text", () => {
    const edit = fc.record({
      at: fc.nat(4000),
      remove: fc.nat(60),
      insert: fc.oneof(
        fc.string({ unit: "binary", maxLength: 6 }),
        fc.constantFrom(
          "\n---\n",
          "{",
          "[",
          '"',
          "'",
          "&a *a",
          "<<: ",
          "\t",
          ": ",
          "- ",
          "!!binary ",
          "|",
          "? ",
          "%YAML 9\n",
          "__proto__: 1",
        ),
      ),
    });
    fc.assert(
      fc.property(fc.nat(texts.length - 1), fc.array(edit, { minLength: 1, maxLength: 3 }), (file, edits) => {
        const changed = edits.reduce((text, { at, remove, insert }) => {
          const start = at % (text.length + 1);
          return `${text.slice(0, start)}${insert}${text.slice(start + remove)}`;
        }, texts[file] ?? "");
        const parsed = parseFile(changed);
        const lines = changed.split(/\r\n|\n|\r/).length + 1;
        for (const { line, message } of parsed.faults) {
          expect(line >= 1 && line <= lines, `line ${line} of ${lines}`).toBe(true);
          expect(message).not.toBe("");
        }
        for (const { position } of parsed.manifests)
          expect(linesOf(changed)(position, "spec.upstreams[0].baseURL")).toBeGreaterThan(0);
        const others = manifests.filter((one) => !files[file]?.manifests.includes(one));
        const objects = [...parsed.manifests, ...others].map((one) => declared(one, one.spec, 2));
        const { verdicts, routing } = compile({ objects: unique(objects), secrets, published: null });
        for (const { accepted } of verdicts) for (const { path } of accepted) expect(path).not.toBe("");
        expect(routingSchema.safeParse({ ...routing, serial: 2 }).error).toBeUndefined();
      }),
      { numRuns: runs(2000) },
    );
  }, 60_000);
});

/** As the folder does it: the first of one name counts. */
function unique(objects: readonly Declared[]): Declared[] {
  const seen = new Set<string>();
  return objects.filter((object) => {
    const name = `${object.kind} ${reference(object)}`;
    return !seen.has(name) && seen.add(name);
  });
}
