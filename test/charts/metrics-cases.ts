/** Values of metrics, alerts and dashboards. */
import { at, type Case } from "./value-readers.ts";

export const metricsCases: readonly Case[] = [
  {
    value: "metrics.serviceMonitor.enabled",
    set: { metrics: { serviceMonitor: { enabled: true } } },
    read: (rendered) => {
      const selector = at("ServiceMonitor", "gapura", "spec", "selector", "matchLabels")(rendered);
      const labels = at("Service", "gapura-ops", "metadata", "labels")(rendered);
      return (
        selector !== undefined &&
        labels !== undefined &&
        Object.entries(selector as object).every(
          ([key, value]) => (labels as Record<string, unknown>)[key] === value,
        )
      );
    },
    is: true,
  },
  {
    value: "metrics.prometheusRule.enabled",
    set: { metrics: { prometheusRule: { enabled: true } } },
    read: at("PrometheusRule", "gapura", "spec", "groups", 0, "name"),
    is: "gapura",
  },
  {
    value: "metrics.dashboards.enabled",
    set: { metrics: { dashboards: { enabled: true } } },
    read: (rendered) => {
      const text = at("ConfigMap", "gapura-dashboard", "data", "gapura.json")(rendered);
      return text === undefined ? undefined : (JSON.parse(text as string) as { uid: string }).uid;
    },
    is: "gapura",
  },
  {
    value: "metrics.job",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { job: "kubernetes-pods", prometheusRule: { enabled: true } } },
    read: at("PrometheusRule", "gapura", "spec", "groups", 0, "rules", 0, "expr"),
    is: 'absent(gapura_config_info{namespace="gw",job="kubernetes-pods"})',
  },
  {
    value: "metrics.serviceAnnotations",
    set: { metrics: { serviceAnnotations: { "prometheus.io/scrape": "true" } } },
    read: at("Service", "gapura-ops", "metadata", "annotations"),
    is: { "prometheus.io/scrape": "true" },
  },
  {
    value: "metrics.serviceMonitor.labels",
    base: { metrics: { serviceMonitor: { enabled: true } } },
    set: { metrics: { serviceMonitor: { enabled: true, labels: { release: "prometheus" } } } },
    read: at("ServiceMonitor", "gapura", "metadata", "labels", "release"),
    is: "prometheus",
  },
  {
    value: "metrics.serviceMonitor.interval",
    base: { metrics: { serviceMonitor: { enabled: true } } },
    set: { metrics: { serviceMonitor: { enabled: true, interval: "1m" } } },
    read: at("ServiceMonitor", "gapura", "spec", "endpoints", 0, "interval"),
    is: "1m",
  },
  {
    value: "metrics.prometheusRule.labels",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { prometheusRule: { enabled: true, labels: { release: "prometheus" } } } },
    read: at("PrometheusRule", "gapura", "metadata", "labels", "release"),
    is: "prometheus",
  },
  {
    value: "metrics.prometheusRule.annotations",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { prometheusRule: { enabled: true, annotations: { "example.com/a": "b" } } } },
    read: at("PrometheusRule", "gapura", "metadata", "annotations", "example.com/a"),
    is: "b",
  },
  {
    value: "metrics.prometheusRule.interval",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { prometheusRule: { enabled: true, interval: "2m" } } },
    read: at("PrometheusRule", "gapura", "spec", "groups", 0, "interval"),
    is: "2m",
  },
  {
    value: "metrics.prometheusRule.runbookUrl",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { prometheusRule: { enabled: true, runbookUrl: "https://wiki.example/gapura" } } },
    read: at("PrometheusRule", "gapura", "spec", "groups", 0, "rules", 0, "annotations", "runbook_url"),
    is: "https://wiki.example/gapura#gapuranodataplane",
  },
  {
    value: "metrics.dashboards.labels",
    base: { metrics: { dashboards: { enabled: true } } },
    set: { metrics: { dashboards: { enabled: true, labels: { grafana: "main" } } } },
    read: (rendered) =>
      ["grafana", "grafana_dashboard"].map((label) =>
        at("ConfigMap", "gapura-dashboard", "metadata", "labels", label)(rendered),
      ),
    is: ["main", "1"],
  },
  {
    value: "metrics.dashboards.annotations",
    base: { metrics: { dashboards: { enabled: true } } },
    set: { metrics: { dashboards: { enabled: true, annotations: { grafana_folder: "Inference" } } } },
    read: at("ConfigMap", "gapura-dashboard", "metadata", "annotations"),
    is: { grafana_folder: "Inference" },
  },
];
