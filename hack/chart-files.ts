/** The files of the charts that are generated from others; `npm run generate` writes them, a test compares. */
import { readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { chartReadme, chartSchema } from "./chart.ts";
import { dashboard } from "./dashboard.ts";

const root = resolve(import.meta.dirname, "..");

const charts = [
  {
    folder: "charts/gapura",
    title: "gapura",
    intro:
      "The operator and the data plane of Gapura. Install the custom resource definitions first (`charts/gapura-crds`); see `docs/kubernetes.md`.",
  },
  {
    folder: "charts/gapura-crds",
    title: "gapura-crds",
    intro:
      "The custom resource definitions of Gapura, in a chart of their own because Helm never upgrades a `crds` folder.",
  },
];

/** @param crds the generated definitions, by path: the chart can read only what lies in its own folder. */
export function chartFiles(crds: readonly (readonly [string, string])[]): (readonly [string, string])[] {
  const made = charts.flatMap(({ folder, title, intro }) => {
    const values = readFileSync(join(root, folder, "values.yaml"), "utf8");
    return [
      [`${folder}/README.md`, chartReadme(title, intro, values)] as const,
      [`${folder}/values.schema.json`, `${JSON.stringify(chartSchema(values), null, 2)}\n`] as const,
    ];
  });
  const copies = crds
    .filter(([path]) => /^crds\/[^/]+\.yaml$/.test(path))
    .map(([path, text]) => [`charts/gapura-crds/files/${basename(path)}`, text] as const);
  const board = [
    "charts/gapura/dashboards/gapura.json",
    `${JSON.stringify(dashboard(), null, 2)}\n`,
  ] as const;
  return [...made, ...copies, board];
}
