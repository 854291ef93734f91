import { Scalar } from "yaml";
import { expect, onTestFinished, test, vi } from "vitest";
import { computedMs } from "../../test/fakes/computed.ts";
import { linesOf, parseFile } from "./parse.ts";

const told = (text: string) =>
  parseFile(text).faults.map(({ line, kind, path }) => `${line} ${kind} ${path}`.trim());

test("a fault of a Secret is told on its own line", () => {
  const text = `# The provider's.
---
apiVersion: v1
kind: Secret
metadata:
  name: provider
  lables: {}
data:
  good: aGk=
  bad.key: "%%"
stringData:
  number: 5
`;
  expect(told(text)).toEqual([
    "7 Secret metadata.lables",
    '10 Secret data["bad.key"]',
    "12 Secret stringData.number",
  ]);
});

test("labels that are no texts are a fault of the object, as a cluster does not take it", () => {
  const text = `apiVersion: gapura.dev/v1alpha1
kind: PriceTable
metadata: {name: m, labels: {version: 1.0, live: true, team: ml, none: null}, annotations: {}}
spec: {unit: USD}
`;
  expect(parseFile(text).manifests).toMatchObject([
    {
      faults: [
        { reason: "Invalid", path: "metadata.labels.version", message: "must be a string, in quotes" },
        { reason: "Invalid", path: "metadata.labels.live", message: "must be a string, in quotes" },
      ],
    },
  ]);
});

test("names of labels, annotations and finalizers that no API server takes are a fault of the object, with their path", () => {
  const long = "a".repeat(64);
  const faulty = (metadata: string): (readonly [path: string, message: string])[] =>
    parseFile(
      `apiVersion: gapura.dev/v1alpha1\nkind: PriceTable\nmetadata: {name: m, ${metadata}}\nspec: {unit: USD}\n`,
    ).manifests.flatMap(({ faults }) => faults.map(({ path, message }) => [path, message] as const));
  const good = [
    "labels: {app.kubernetes.io/name: gapura, Team_1: ML-a.b, empty: '', none: null, '1': a}",
    `labels: {${long.slice(1)}: ${long.slice(1)}}`,
    "annotations: {Example.com/Any: 'any text: ünïcödé', note: ''}",
    "finalizers: [example.com/keep, orphan]",
    "finalizers: null",
  ];
  for (const metadata of good) expect(faulty(metadata), metadata).toEqual([]);
  const key = "must have a name of letters, digits, -, _ and ., at most 63";
  const text = "must be letters, digits, -, _ and ., at most 63";
  const bad = [
    ["labels: {'my label': a}", 'metadata.labels["my label"]', key],
    ["labels: {Example.com/a: a}", 'metadata.labels["Example.com/a"]', key],
    ["labels: {a/b/c: a}", 'metadata.labels["a/b/c"]', key],
    [`labels: {${long}: a}`, `metadata.labels.${long}`, key],
    ["labels: {'-a': null}", 'metadata.labels["-a"]', key],
    ["labels: {team: a b}", "metadata.labels.team", text],
    ["labels: {team: -a}", "metadata.labels.team", text],
    ["labels: {team: 'a\\n'}".replace(/'/g, '"'), "metadata.labels.team", text],
    [`labels: {team: ${long}}`, "metadata.labels.team", text],
    ["annotations: {'a b': a}", 'metadata.annotations["a b"]', key],
    [`annotations: {big: ${"a".repeat(256 * 1024)}}`, "metadata.annotations", "must have at most 256 KiB"],
    ["finalizers: keep", "metadata.finalizers", "must be a list"],
    ["finalizers: [5]", "metadata.finalizers[0]", "must be a string, in quotes"],
    ["finalizers: [a, 'b c']", "metadata.finalizers[1]", key],
  ] as const;
  for (const [metadata, path, message] of bad)
    expect(faulty(metadata), metadata.slice(0, 100)).toEqual([[path, expect.stringMatching(`^${message}`)]]);
});

test("words and numbers that kubectl, which reads YAML 1.1, takes for something else are faults where it matters", () => {
  const head = "apiVersion: gapura.dev/v1alpha1\nkind: PriceTable\nmetadata: {name: n, labels: {on: NO}}\n";
  const others = "[y, Yes, ON, n, NO, off, 010, 0b10, 1_000]";
  const same =
    "[true, False, 'yes', \"no\", 0o10, 0x10, -7, 0, 1.5, 1e3, 2026-11-30, 12:30, yEs, nO, ., '010', null, ~]";
  const text = `${head}spec:\n  others: ${others}\n  same: ${same}\n  more: {y: 1}\n`;
  const { faults } = parseFile(text, { forKubectl: true });
  expect(faults.map(({ line, name, path }) => `${line} ${name} ${path}`)).toEqual([
    "3 n metadata.name",
    "3 n metadata.labels.on",
    "3 n metadata.labels.on",
    ...Array.from({ length: 9 }, (_, index) => `5 n spec.others[${index}]`),
    "7 n spec.more.y",
  ]);
  expect(faults[0]?.message).toMatch(/^is true or false to kubectl/);
  expect(faults[9]?.message).toMatch(/^is another value to kubectl/);
  expect(faults.every(({ hidesObject }) => !hidesObject)).toBe(true);
  // The product itself reads YAML 1.2, in which these are text.
  expect(parseFile(text).faults).toEqual([]);
  const other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: n}\ndata: {a: NO}\n";
  expect(parseFile(other, { forKubectl: true }).faults).toEqual([]);
  const list = `apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: s}\n  stringData:\n    key: NO\n`;
  expect(parseFile(list, { forKubectl: true }).faults).toMatchObject([
    {
      line: 8,
      kind: "Secret",
      name: "s",
      path: "stringData.key",
      message: expect.not.stringContaining("NO"),
    },
  ]);
});

test("a fault of what stands around a spec is told on its own line", () => {
  const text = `kind: ModelRoute
metadata:
  name: m
apiVersion: gapura.dev/v2
---
kind: ModelRoute
apiVersion: gapura.dev/v1alpha1
metadata:
  labels: {}
  name: Upper
---
kind: ModelRoute
apiVersion: gapura.dev/v1alpha1
metadata:
  name: m
  namespace: 5
---
apiVersion: gapura.dev/v1alpha1
metadata: {name: m}
kind: ModelRoot
`;
  expect(told(text)).toEqual([
    "4 ModelRoute apiVersion",
    "10 ModelRoute metadata.name",
    "16 ModelRoute metadata.namespace",
    "20 ModelRoot kind",
  ]);
});

test.each([
  ["apiVersion: 5\nkind: PriceTable", "apiVersion", "must be a string, in quotes"],
  ["apiVersion: gapura.dev/v1alpha1\nkind: [PriceTable]", "kind", "must be a string"],
  ["apiVersion: gapura.dev/v1alpha1\nkind: ''", "kind", "is required"],
  ["apiVersion: gapura.dev/v1alpha1\nkind: PriceTable", "metadata", "is required"],
  ["apiVersion: gapura.dev/v1alpha1\nkind: PriceTable\nmetadata: [m]", "metadata", "must be an object"],
  ["apiVersion: gapura.dev/v1alpha1\nkind: PriceTable\nmetadata: {}", "metadata.name", "is required"],
  [
    "apiVersion: v1\nkind: Secret\nmetadata: {name: m}\nstringData: {port: 5432}",
    "stringData.port",
    "must be a string, in quotes",
  ],
  [
    "apiVersion: gapura.dev/v1alpha1\nkind: PriceTable\nmetadata: {name: 5}",
    "metadata.name",
    "must be a string, in quotes",
  ],
  [
    "apiVersion: gapura.dev/v1alpha1\nkind: PriceTable\nmetadata: {name: m, namespace: 5}",
    "metadata.namespace",
    "must be a string, in quotes",
  ],
  [
    "apiVersion: v1\nkind: Secret\nmetadata: {name: m, annotations: {revision: 5, note: null, by: me}}",
    "metadata.annotations.revision",
    "must be a string, in quotes",
  ],
  [
    "apiVersion: v1\nkind: Secret\nmetadata: {name: m, annotations: null, labels: [a]}",
    "metadata.labels",
    "must be an object",
  ],
])(
  "%j: what is there in a wrong form is not called missing, and a number is to be put in quotes",
  (text, path, message) => {
    expect(parseFile(text).faults).toMatchObject([{ path, message }]);
  },
);

test.each(["stringData: {api/key: a, .key: b}", "data: {..key: YQ==, .key: Yg==}"])(
  "a data key that no API server takes is a fault of the Secret: %s",
  (values) => {
    const { faults, secrets } = parseFile(`apiVersion: v1\nkind: Secret\nmetadata: {name: m}\n${values}\n`);
    expect(faults).toMatchObject([{ message: "must be a key of a Secret: letters, digits, -, _ and ." }]);
    expect(secrets.map(({ data }) => data)).toEqual([{ ".key": "b" }]);
  },
);

test("an alias without its anchor is told where it stands", () => {
  const text = `apiVersion: gapura.dev/v1alpha1
kind: ModelRoute
metadata: {name: one}
spec: &spec {limits: {contextTokens: 1, maxOutputTokens: 1}}
---
apiVersion: gapura.dev/v1alpha1
kind: ModelRoute
metadata: {name: two}
spec: *spec
`;
  expect(told(text)).toEqual(["9"]);
});

test("an anchor serves a whole table of prices (rule 6.8), an alias bomb is refused where it stands", () => {
  const entry = (model: number) => `  - {<<: *price, model: m${model}}\n`;
  const table = `apiVersion: gapura.dev/v1alpha1
kind: PriceTable
metadata: {name: default}
spec:
  unit: USD
  models:
  - &price {model: m0, input: "3", output: "15"}
${Array.from({ length: 999 }, (_, index) => entry(index + 1)).join("")}`;
  const { manifests, faults } = parseFile(table);
  expect(faults).toEqual([]);
  const { models } = (manifests[0]?.spec ?? { models: [] }) as { models: unknown[] };
  expect(models).toHaveLength(1000);
  expect(models.at(-1)).toEqual({ model: "m999", input: "3", output: "15" });

  const level = (index: number) => `l${index}: &l${index} [${`*l${index - 1}, `.repeat(10)}]\n`;
  const bomb = `l0: &l0 [a, b]\n${Array.from({ length: 30 }, (_, index) => level(index + 1)).join("")}`;
  expect(parseFile(bomb).faults).toMatchObject([
    { line: 7, reason: "Unreadable", message: expect.stringContaining("more than 400000 values") },
  ]);
  expect(parseFile(`one: &one 1\nmany: [${"*one, ".repeat(10_001)}]\n`).faults).toMatchObject([{ line: 2 }]);
  // Each alias is looked for among all anchors.
  const anchors = Array.from({ length: 6_000 }, (_, index) => `- &a${index} 1\n`).join("");
  expect(parseFile(`${anchors}${"- *a5999\n".repeat(4_001)}`).faults).toMatchObject([
    { line: 10_001, message: expect.stringContaining("more than 10000 anchors and aliases") },
  ]);
});

test("an alias without its anchor is found in one pass, behind however many that have theirs", () => {
  const text = `one: &one 1\nplain: [${"1, ".repeat(10_000)}]\nmany:\n${"- *one\n".repeat(4_000)}- *none\n`;
  const before = computedMs();
  expect(parseFile(text).faults).toMatchObject([{ line: 4_004, message: expect.stringContaining("none") }]);
  expect(computedMs() - before).toBeLessThan(2_000);
});

test("a key that its map has before is told where it stands again, in the time of reading the map", () => {
  const keys = Array.from({ length: 50_000 }, (_, index) => `k${index}: 1\n`).join("");
  const before = computedMs();
  expect(parseFile(`${keys}k7: 1\n`).faults).toMatchObject([
    { line: 50_001, message: "is not valid YAML: Map keys must be unique" },
  ]);
  expect(computedMs() - before).toBeLessThan(4_000);
  const repeats = (text: string) => parseFile(text).faults.some(({ message }) => message.includes("unique"));
  expect(["a: {b: 1, b: 2}", "- {? : 1, null: 2}", "a: {1: b, 0x1: c}"].map(repeats)).toEqual([
    true,
    true,
    true,
  ]);
  expect(
    ["a: {b: 1, c: {b: 1}}", 'a: {1: b, "1": c}', "a: &a {b: 1}\nc: {<<: *a, <<: *a}"].map(repeats),
  ).toEqual([false, false, false]);
});

test("items of a List, and of one inside it, have lines of their own", () => {
  const route = (name: string, indent: string) =>
    `${indent}- apiVersion: gapura.dev/v1alpha1
${indent}  kind: ModelRoute
${indent}  metadata: {name: ${name}}
${indent}  spec: {}
`;
  const text = `apiVersion: v1
kind: List
items:
${route("outer", "")}- apiVersion: v1
  kind: List
  items:
${route("first", "  ")}${route("second", "  ")}- apiVersion: v1
  kind: Secret
  metadata: {name: Upper}
`;
  const { manifests, faults } = parseFile(text);
  const lineOf = linesOf(text);
  expect(manifests.map(({ name, line, position }) => [name, line, lineOf(position, "spec")])).toEqual([
    ["outer", 4, 7],
    ["first", 11, 14],
    ["second", 15, 18],
  ]);
  expect(faults.map(({ line }) => line)).toEqual([21]);
});

test("each key of a map is read a few times, however many of its values have a fault", () => {
  const count = 2_000;
  const keys = Array.from({ length: count }, (_, index) => `  k${index}: NO\n`).join("");
  const metadata = "apiVersion: v1\nkind: Secret\nmetadata: {name: provider}\n";
  const read = vi.spyOn(Scalar.prototype, "toString");
  onTestFinished(() => read.mockRestore());
  // Each has two faults: it is no base64, and a boolean to kubectl.
  const { faults } = parseFile(`${metadata}data:\n${keys}`, { forKubectl: true });
  expect(new Set(faults.map(({ line }) => line)).size).toBe(count);
  expect(faults).toHaveLength(2 * count);
  expect(read.mock.calls.length).toBeLessThan(4 * count);
});

test("many faults of YAML in one long line take the time of reading it", () => {
  const count = 40_000;
  const text = `{${Array.from({ length: count }, (_, index) => `"a${index}": @, `).join("")}}`;
  const before = computedMs();
  expect(parseFile(text).faults).toMatchObject([{ line: 1, message: expect.stringMatching(/character @$/) }]);
  expect(computedMs() - before).toBeLessThan(5_000);
});
