/** What the program has and docs/reference does not name is a hole in the page: service.md is the whole contract. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { MOST_COST_DAYS } from "../dataplane/console/src/lib/reports.ts";
import { commands } from "../dataplane/commands.ts";
import { environmentSchema } from "../dataplane/environment.ts";
import { limits } from "../dataplane/http/limits.ts";
import { MOST_HELD } from "../dataplane/inference/answer/held-items.ts";
import { MAX_ANSWER_BYTES, MAX_ANSWER_CONTAINERS } from "../dataplane/upstream/limits.ts";
import { operations } from "../dataplane/http/openapi/operations.ts";
import { errorKinds } from "../dataplane/lib/api-error.ts";
import { MOST_DAYS } from "../dataplane/reports/charges.ts";
import { metrics, registry } from "../dataplane/telemetry/metrics.ts";
import { operatorEnvironmentSchema } from "../operator/environment.ts";
import { Telemetry } from "../operator/kube/telemetry.ts";

const root = join(import.meta.dirname, "..");
const page = readFileSync(join(root, "docs/reference/service.md"), "utf8");
const missing = (names: Iterable<string>) => [...names].filter((name) => !page.includes(name));

test("every endpoint", () => {
  const named = Object.keys(operations).map((operation) =>
    operation.replace("/*", "/{id}").replace(":project", "{project}").replace(":id", "{id}"),
  );
  expect(named.length).toBeGreaterThan(30);
  expect(missing(named.map((operation) => `\`${operation}\``))).toEqual([]);
});

test("every variable of both programs' environments", () => {
  const source = readFileSync(join(root, "dataplane/environment.ts"), "utf8");
  // Some only complete the value of another.
  const others = Array.from(source.matchAll(/const \{([^}]+)\} = variables/g), ([, names]) =>
    names!.match(/\b[A-Z][A-Z_0-9]+\b/g)!,
  ).flat();
  expect(others).toContain("MIGRATE_DATABASE_URL");
  const operators = Object.keys(operatorEnvironmentSchema.shape);
  const names = [...Object.keys(environmentSchema.shape), ...others, ...operators];
  expect(missing(names.map((name) => `\`${name}\``))).toEqual([]);
});

test("every command of the data plane", () => {
  expect(missing([...commands.keys()].map((name) => `\`dataplane/main.ts ${name}`))).toEqual([]);
});

test("every metric, of both programs", () => {
  const names = [...registry.getMetricsAsArray(), ...new Telemetry().registry.getMetricsAsArray()].map(
    ({ name }) => name,
  );
  expect(names.length).toBeGreaterThan(Object.keys(metrics).length);
  expect(missing(names.map((name) => `\`${name}\``))).toEqual([]);
});

test("every code of an error", () => {
  const codes = Object.values(errorKinds).flatMap((kind) => [
    kind.openaiCode ?? "",
    "detailsCode" in kind ? kind.detailsCode : "",
  ]);
  expect(missing(new Set(codes))).toEqual([]);
});

test("the longest report of costs, which the console asks for in parts", () => {
  const rules = readFileSync(join(root, "docs/reference/rules.md"), "utf8").replaceAll(/\s+/g, " ");
  expect(rules).toContain(`${MOST_DAYS} days at most`);
  expect(MOST_COST_DAYS).toBe(MOST_DAYS);
});

test("the limits of connections, uploads and keys", () => {
  const count = (value: number) => value.toLocaleString("en");
  const [seconds, kib, mib] = [1000, 1024, 1024 ** 2].map((unit) => (value: number) => String(value / unit));
  const { formFields, formFieldBytes, formBytes, headerBytes, headerCount } = limits;
  const rows = [
    `the whole form | ${formFields}; ${kib!(formFieldBytes)} KiB; ${mib!(formBytes)} MiB |`,
    `| headers | ${kib!(headerBytes)} KiB together, ${headerCount} |`,
    `has come | ${seconds!(limits.headersTimeoutMs)} s; ${seconds!(limits.bodyIdleMs)} s; ${seconds!(limits.requestTimeoutMs)} s |`,
    `kept output items of it | ${mib!(MAX_ANSWER_BYTES)} MiB; ${count(MAX_ANSWER_CONTAINERS)}, beyond either it cannot be read (502, charged); ${count(MOST_HELD)} |`,
    `connections of a data plane | ${limits.pipelined}; ${count(limits.connections)}, closed beyond |`,
    `while ${count(limits.connectionsWithoutShares)} of known keys are open | ${count(limits.connectionsOfOne)} (429 beyond) |`,
    `while ${count(limits.connections - limits.connectionsOfOne / 2)} are open | twice as many as are left of ${count(limits.connections)} (429 beyond) |`,
  ];
  expect(rows.filter((row) => !page.includes(row))).toEqual([]);
});

test("every dependency, with its reason", () => {
  const reasons = readFileSync(join(root, "docs/reference/dependencies.md"), "utf8");
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    dependencies: Record<string, string>;
  };
  const names = Object.keys(manifest.dependencies);
  expect(names.length).toBeGreaterThan(10);
  expect(names.filter((name) => !reasons.includes(name))).toEqual([]);
});

test("the one test that CONTRIBUTING runs is there", () => {
  const guide = readFileSync(join(root, "CONTRIBUTING.md"), "utf8");
  const [, file = "", name = ""] = /vitest run --project=unit (\S+) -t "([^"]+)"/.exec(guide) ?? [];
  expect(readFileSync(join(root, file), "utf8")).toContain(`test("${name}`);
});

test("the glossary has at most sixty terms", () => {
  const glossary = readFileSync(join(root, "docs/reference/glossary.md"), "utf8");
  const terms = Array.from(glossary.matchAll(/^\| ([^|]+) \|/gm), ([, term]) => term!).filter(
    (term) => term !== "Term" && !term.startsWith("-"),
  );
  expect(new Set(terms).size).toBe(terms.length);
  expect(terms.length).toBeGreaterThan(40);
  expect(terms.length).toBeLessThanOrEqual(60);
});
