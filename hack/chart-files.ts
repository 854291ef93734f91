/** The files of the charts that are made of others; `npm run generate` writes them, a test compares. */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { chartReadme, chartSchema } from "./chart.ts";

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

export function chartFiles(): { readonly path: string; readonly text: string }[] {
  return charts.flatMap(({ folder, title, intro }) => {
    const values = readFileSync(join(root, folder, "values.yaml"), "utf8");
    return [
      { path: `${folder}/README.md`, text: chartReadme(title, intro, values) },
      { path: `${folder}/values.schema.json`, text: `${JSON.stringify(chartSchema(values), null, 2)}\n` },
    ];
  });
}
