/** The Prometheus queries of the chart: its alerts and its dashboard. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { parse } from "yaml";
import { z } from "zod";

const chart = resolve(import.meta.dirname, "../../charts/gapura");

const alertsText = readFileSync(resolve(chart, "alerts.yaml"), "utf8");

/** The alerts as the chart fills them in. */
export const alertsOf = (namespace: string, job: string) =>
  alertsText
    .replaceAll("NAMESPACE", namespace)
    .replaceAll("JOB", job)
    .replaceAll("RUNBOOK", "https://wiki.example/gapura");

const alertsSchema = z.object({
  groups: z.array(
    z.object({
      rules: z.array(
        z.strictObject({
          alert: z.string(),
          expr: z.string(),
          for: z.string().optional(),
          labels: z.strictObject({ severity: z.enum(["warning", "critical"]) }),
          annotations: z.strictObject({
            summary: z.string(),
            description: z.string(),
            runbook_url: z.string(),
          }),
        }),
      ),
    }),
  ),
});

export const alerts = () => alertsSchema.parse(parse(alertsText)).groups.flatMap(({ rules }) => rules);

const dashboardSchema = z.object({
  templating: z.object({ list: z.array(z.object({ name: z.string(), query: z.string() })) }),
  panels: z.array(
    z.object({
      title: z.string(),
      // A row has none.
      targets: z.array(z.object({ expr: z.string(), legendFormat: z.string().optional() })).default([]),
    }),
  ),
});

/** Every query of the dashboard as Grafana sends it when nothing is chosen. */
export function dashboardQueries(): {
  readonly panel: string;
  readonly expr: string;
  readonly legend: string;
}[] {
  const text = readFileSync(resolve(chart, "dashboards/gapura.json"), "utf8");
  const { panels } = dashboardSchema.parse(JSON.parse(text));
  return panels.flatMap(({ title, targets }) =>
    targets.map(({ expr, legendFormat = "" }) => ({
      panel: title,
      expr: expr.replaceAll("$__rate_interval", "2m").replaceAll(/\$(cluster|namespace|job|model)/g, ".*"),
      legend: legendFormat,
    })),
  );
}

/** Names of the dashboard's variables and what Grafana asks for to fill them. */
export const dashboardVariables = () =>
  dashboardSchema.parse(JSON.parse(readFileSync(resolve(chart, "dashboards/gapura.json"), "utf8"))).templating
    .list;

/** Names of our metrics in a query, without a histogram's suffix. */
export const metricsIn = (expr: string): string[] =>
  (expr.match(/\bgapura_[a-z_]+\b/g) ?? []).map((name) => name.replace(/_bucket$/, ""));

/** Labels that a query selects or groups by. */
export function labelsIn(expr: string): string[] {
  const grouped = Array.from(expr.matchAll(/\bby\s*\(([^)]*)\)/g), (match) => (match[1] ?? "").split(","));
  const selected = Array.from(expr.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)\s*"/g), (match) => match[1] ?? "");
  return [...grouped.flat().map((name) => name.trim()), ...selected].filter((name) => name !== "");
}
