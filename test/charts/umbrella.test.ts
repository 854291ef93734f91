/** One release of a chart of somebody's own that holds this one twice, under two aliases. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, expect, test } from "vitest";
import { parse } from "yaml";
import { type KubeObject, podOf, template } from "./helm.ts";
import { everything, stores } from "./matrix.ts";

const chart = resolve(import.meta.dirname, "../../charts/gapura");
const umbrella = mkdtempSync(join(tmpdir(), "umbrella-"));
afterAll(() => rmSync(umbrella, { recursive: true }));

type Labels = Readonly<Record<string, string>>;
const NAME = "app.kubernetes.io/name";

/** Everything that selects one of ours, wherever it stands in an object. */
function* selectorsIn(value: unknown, key = ""): Generator<Labels> {
  if (typeof value === "string" && key === "DATA_PLANE_SELECTOR")
    yield Object.fromEntries(value.split(",").map((part) => part.split("=") as [string, string]));
  if (typeof value !== "object" || value === null) return;
  if ((key === "matchLabels" || key === "selector") && NAME in value) yield value as Labels;
  if ("name" in value && "value" in value) yield* selectorsIn(value.value, String(value.name));
  for (const [name, inner] of Object.entries(value)) yield* selectorsIn(inner, name);
}

/** Without the name that both would have. */
const withoutNames = ({ operator, ...values }: typeof everything) => ({
  ...values,
  operator: { ...operator, serviceAccount: {} },
});

const labelsOf = (object: KubeObject): readonly Labels[] => {
  const { template: pod } = (object["spec"] ?? {}) as { template?: { metadata?: { labels?: Labels } } };
  return [object.metadata.labels ?? {}, ...(podOf(object) === null ? [] : [pod?.metadata?.labels ?? {}])];
};

const doesSelect = (selector: Labels, labels: Labels): boolean =>
  Object.entries(selector).every(([key, value]) => labels[key] === value);

/** A release `shop` with the installs `west` and `east`. */
async function renderTwo(values: object): Promise<readonly KubeObject[]> {
  const { version } = parse(readFileSync(join(chart, "Chart.yaml"), "utf8")) as { version: string };
  mkdirSync(join(umbrella, "charts"), { recursive: true });
  cpSync(chart, join(umbrella, "charts/gapura"), { recursive: true });
  const dependencies = ["west", "east"].map((alias) => ({ name: "gapura", version, alias }));
  const own = { apiVersion: "v2", name: "umbrella", version: "1.0.0", dependencies };
  writeFileSync(join(umbrella, "Chart.yaml"), JSON.stringify(own));
  return (await template({ west: values, east: values }, "shop", "gw", umbrella)).objects;
}

test.each([
  ["everything", withoutNames(everything)],
  ["stores of its own", { quickstart: { enabled: true }, networkPolicy: { enabled: true } }],
  ["stores that are there", stores],
])("%s: no install selects what the other one has", async (_title, values) => {
  const objects = await renderTwo(values);
  const installOf = ({ metadata }: KubeObject) => /shop-(\w+)/.exec(metadata.name)?.[1];
  const labelled = objects.flatMap((object) =>
    labelsOf(object).map((labels) => ({ install: installOf(object), labels })),
  );
  const selections = objects.flatMap((object) =>
    [...selectorsIn(object)].map((selector) => {
      const selected = labelled.filter(({ labels }) => doesSelect(selector, labels));
      return {
        object: `${object.kind} ${object.metadata.name}`,
        of: installOf(object),
        selects: [...new Set(selected.map(({ install }) => install))],
      };
    }),
  );
  expect(selections.length).toBeGreaterThan(10);
  expect(selections.filter(({ of, selects }) => selects.length !== 1 || selects[0] !== of)).toEqual([]);
});

test("the guide deletes the volumes of one install, and leaves those of the other one and of other charts", async () => {
  const guide = readFileSync(resolve(import.meta.dirname, "../../docs/kubernetes.md"), "utf8");
  const [, documented = ""] = /^kubectl -n gapura delete pvc -l (\S+)/m.exec(guide) ?? [];
  const INSTANCE = "app.kubernetes.io/instance";
  expect(documented.split(",").toSorted()).toEqual([`${INSTANCE}=gapura`, `${NAME}=gapura`]);

  // A StatefulSet's volumes have the labels by which it selects its pods.
  const sets = (await renderTwo({ quickstart: { enabled: true } })).filter(
    ({ kind }) => kind === "StatefulSet",
  );
  const deleted = (install: Labels) =>
    sets
      .filter(({ spec }) =>
        doesSelect(install, (spec as { selector: { matchLabels: Labels } }).selector.matchLabels),
      )
      .map(({ metadata }) => metadata.name);
  for (const alias of ["west", "east"])
    expect(deleted({ [NAME]: alias, [INSTANCE]: "shop" })).toEqual([
      `shop-${alias}-postgres`,
      `shop-${alias}-redis`,
    ]);
});
