/** Alerts and dashboard by Prometheus' own judgement, and each alert by what makes it fire. */
import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { z } from "zod";
import { registry } from "../../dataplane/telemetry/metrics.ts";
import { prometheusTools } from "../../hack/prometheus.ts";
import { Telemetry } from "../../operator/kube/telemetry.ts";
import { render } from "./helm.ts";
import { stores } from "./matrix.ts";
import { alerts, dashboardQueries, dashboardVariables, labelsIn, metricsIn } from "./queries.ts";

const say = (line: string) => process.stderr.write(`charts: ${line}\n`);
const tools = await prometheusTools(say).catch((error: unknown) => {
  say(`no promtool (${String(error)}); these tests are skipped (apt-get install prometheus)`);
  return null;
});
const unitTests = resolve(import.meta.dirname, "alerts.promtool.yaml");

const RUNBOOK = "https://wiki.example/gapura";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gapura-promtool-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.skipIf(tools === null)("promtool", () => {
  const promtool = (...args: string[]) => {
    const { path, environment } = tools?.promtool ?? { path: "", environment: {} };
    const result = spawnSync(path, args, { env: { ...process.env, ...environment }, encoding: "utf8" });
    return { status: result.status, out: `${result.stdout}${result.stderr}` };
  };

  /** The rules of a release as its PrometheusRule has them. */
  const rulesOf = async (namespace: string) => {
    const metrics = { prometheusRule: { enabled: true, runbookUrl: RUNBOOK } };
    const rendered = await render({ ...stores, metrics }, "gapura", namespace);
    const file = join(folder, `${namespace}.yaml`);
    await writeFile(file, stringify(rendered.all("PrometheusRule")[0]?.["spec"]));
    return file;
  };

  test("parses the alerts", async () => {
    expect(promtool("check", "rules", "--lint-fatal", await rulesOf("gw"))).toMatchObject({ status: 0 });
  });

  test("parses the dashboard's queries", async () => {
    const file = join(folder, "dashboard.yaml");
    const rules = dashboardQueries().map(({ expr }, n) => ({ record: `panel:query:${n}`, expr }));
    await writeFile(file, stringify({ groups: [{ name: "dashboard", rules }] }));
    expect(promtool("check", "rules", file)).toMatchObject({ status: 0 });
    await writeFile(
      file,
      stringify({ groups: [{ name: "x", rules: [{ record: "x:y", expr: "sum by (a" }] }] }),
    );
    expect(promtool("check", "rules", file).status).not.toBe(0);
  });

  test("finds that each alert fires when it should, once, and not otherwise", async () => {
    const rules = [await rulesOf("gw"), await rulesOf("other")];
    const file = join(folder, "alerts.promtool.yaml");
    const text = await readFile(unitTests, "utf8");
    await writeFile(file, text.replace("[RULES]", JSON.stringify(rules)).replaceAll("RUNBOOK", RUNBOOK));
    const { status, out } = promtool("test", "rules", file);
    expect({ status, out }).toMatchObject({ status: 0 });
  });
});

const unitTestsSchema = z.object({
  tests: z.array(
    z.object({
      alert_rule_test: z.array(
        z.object({ alertname: z.string(), exp_alerts: z.array(z.unknown()).default([]) }),
      ),
    }),
  ),
});

describe("alerts and dashboard", () => {
  const metrics = [registry, new Telemetry().registry].flatMap((source) => source.getMetricsAsArray());
  const labelsOf = new Map(
    metrics.map((metric) => [metric.name, (metric as unknown as { labelNames: string[] }).labelNames]),
  );
  /** What Prometheus adds to every series, and to a histogram's. */
  const always = ["cluster", "namespace", "job", "le"];
  const queries = [
    ...alerts().map(({ alert, expr }) => ({ of: alert, expr })),
    ...dashboardQueries().map(({ panel, expr }) => ({ of: panel, expr })),
  ];

  test.each(queries)("$of asks only for metrics and labels that there are", ({ expr }) => {
    const names = metricsIn(expr);
    expect(names.length).toBeGreaterThan(0);
    expect(names.filter((name) => !labelsOf.has(name))).toEqual([]);
    const labels = new Set([...always, ...names.flatMap((name) => labelsOf.get(name) ?? [])]);
    expect(labelsIn(expr).filter((label) => !labels.has(label))).toEqual([]);
  });

  test("a panel's legend names only labels that its query leaves", () => {
    for (const { expr, legend } of dashboardQueries()) {
      const named = Array.from(legend.matchAll(/{{(\w+)}}/g), (match) => match[1] ?? "");
      expect(named.filter((label) => !labelsIn(expr).includes(label))).toEqual([]);
    }
  });

  test("the dashboard is narrowed by cluster, namespace, job and model, each by what there is", () => {
    expect(dashboardVariables().map(({ name }) => name)).toEqual([
      "datasource",
      "cluster",
      "namespace",
      "job",
      "model",
    ]);
    for (const { name, query } of dashboardVariables().slice(1)) {
      expect(query).toMatch(new RegExp(`^label_values\\(gapura_\\w+.*, ${name}\\)$`));
      expect(metricsIn(query).filter((metric) => !labelsOf.has(metric))).toEqual([]);
    }
    for (const { panel, expr } of dashboardQueries())
      for (const selector of expr.matchAll(/gapura_\w+(\{[^}]*\})?/g))
        expect(selector[1], panel).toContain('cluster=~".*",namespace=~".*",job=~".*"');
  });

  test("what every pod reports of the whole release is no sum over pods", () => {
    const shared = metrics
      .filter(({ help }) => help.includes("of all pods together"))
      .map(({ name }) => name);
    const queries = dashboardQueries().filter(({ expr }) =>
      [...shared, "gapura_usage_lag_entries"].some((name) => expr.includes(name)),
    );
    expect(queries.length).toBeGreaterThanOrEqual(4);
    for (const { expr } of queries) expect(expr).toMatch(/^max by /);
  });

  test("every metric of the operator has its place in the dashboard or in an alert", () => {
    const asked = new Set(queries.flatMap(({ expr }) => metricsIn(expr)));
    const own = new Telemetry().registry.getMetricsAsArray().map(({ name }) => name);
    expect(own.filter((name) => !asked.has(name))).toEqual(["gapura_operator_published_serial"]);
  });

  test("every alert keeps releases apart, is tested both ways, and has an entry in the runbook", async () => {
    const runbook = await readFile(resolve(import.meta.dirname, "../../docs/operations.md"), "utf8");
    const headings = Array.from(runbook.matchAll(/^#+ (Gapura\w+)$/gm), (match) => match[1] ?? "");
    const { tests } = unitTestsSchema.parse(parse(await readFile(unitTests, "utf8")));
    const tested = tests.flatMap((entry) => entry.alert_rule_test);
    for (const { alert, expr, annotations } of alerts()) {
      expect(annotations.runbook_url).toBe(`RUNBOOK#${alert.toLowerCase()}`);
      expect(headings, `${alert} in docs/operations.md`).toContain(alert);
      const own = tested.filter(({ alertname }) => alertname === alert);
      expect(
        own.some(({ exp_alerts }) => exp_alerts.length > 0),
        `${alert} is seen to fire`,
      ).toBe(true);
      expect(
        own.some(({ exp_alerts }) => exp_alerts.length === 0),
        `${alert} is seen not to fire`,
      ).toBe(true);
      // Every series is this release's, and an alert says whose it is.
      for (const of of expr.matchAll(/\bgapura_\w+(.{0,35})/g))
        expect(of[1], expr).toMatch(/^\{namespace="NAMESPACE",job="JOB"[,}]/);
      if (!expr.startsWith("absent(")) expect(expr).toContain("by (namespace, job");
    }
    expect(headings.toSorted()).toEqual(
      alerts()
        .map(({ alert }) => alert)
        .toSorted(),
    );
  });
});
