/**
 * The Grafana dashboard of the chart; `npm run generate` writes it. Metrics of the whole release that every pod reports (the
 * ledger's lag by shard, dead letters, batch items) are shown as a maximum over pods, a pod's own metrics as a sum.
 */

interface Panel {
  readonly title: string;
  readonly unit: string;
  /** Queries with their legends; `$release` stands for the labels that select one release. */
  readonly queries: readonly (readonly [expr: string, legend: string])[];
}

const quantiles = (histogram: string, labels: string): Panel["queries"] =>
  [
    [0.5, "median"],
    [0.99, "99%"],
  ].map(([quantile, legend]) => [
    `histogram_quantile(${quantile}, sum by (le) (rate(${histogram}_bucket{${labels}}[$__rate_interval])))`,
    String(legend),
  ]);
const rate = (metric: string, by: string, labels = "$release"): Panel["queries"][number] => [
  `sum by (${by}) (rate(${metric}{${labels}}[$__rate_interval]))`,
  by
    .split(", ")
    .map((label) => `{{${label}}}`)
    .join(" "),
];
const ofModel = '$release,model=~"$model"';

const rows: readonly (readonly [title: string, panels: readonly Panel[]])[] = [
  [
    "Answers",
    [
      { title: "Requests", unit: "reqps", queries: [rate("gapura_requests_total", "status", ofModel)] },
      {
        title: "Time to the first byte",
        unit: "s",
        queries: quantiles("gapura_first_byte_seconds", ofModel),
      },
      { title: "Added by the gateway", unit: "s", queries: quantiles("gapura_overhead_seconds", "$release") },
      { title: "Tokens", unit: "short", queries: [rate("gapura_tokens_total", "kind", ofModel)] },
      {
        title: "Credits charged a minute",
        unit: "short",
        queries: [
          [`60 * sum by (model) (rate(gapura_credits_total{${ofModel}}[$__rate_interval]))`, "{{model}}"],
        ],
      },
      {
        title: "Server-tool calls",
        unit: "ops",
        queries: [rate("gapura_tool_calls_total", "tool, outcome")],
      },
    ],
  ],
  [
    "Why requests fail",
    [
      {
        // One panel for all causes, so that the largest is seen at once.
        title: "Failures by cause",
        unit: "reqps",
        queries: [
          [
            `sum by (upstream, status) (rate(gapura_upstream_requests_total{${ofModel},status!~"2.."}[$__rate_interval]))`,
            "upstream {{upstream}}: {{status}}",
          ],
          [
            "sum by (kind) (rate(gapura_stream_faults_total{$release}[$__rate_interval]))",
            "stream: {{kind}}",
          ],
          [
            "sum by (reason) (rate(gapura_refused_requests_total{$release}[$__rate_interval]))",
            "refused: {{reason}}",
          ],
          [
            "sum by (reason) (rate(gapura_shed_requests_total{$release}[$__rate_interval]))",
            "overload: {{reason}}",
          ],
        ],
      },
      {
        title: "Broken streams",
        unit: "ops",
        queries: [rate("gapura_stream_faults_total", "dialect, kind")],
      },
      {
        title: "Refused before they were served",
        unit: "reqps",
        queries: [rate("gapura_refused_requests_total", "reason")],
      },
    ],
  ],
  [
    "Upstreams",
    [
      {
        title: "Upstream calls",
        unit: "reqps",
        queries: [rate("gapura_upstream_requests_total", "upstream, status", ofModel)],
      },
      {
        title: "Upstream calls under way",
        unit: "short",
        queries: [
          [
            `sum by (model, upstream) (gapura_upstream_active_requests{${ofModel}})`,
            "{{model}} {{upstream}}",
          ],
        ],
      },
      {
        title: "Upstreams taken out",
        unit: "short",
        queries: [
          [`max by (model, upstream) (gapura_upstream_ejected{${ofModel}})`, "{{model}} {{upstream}}"],
        ],
      },
    ],
  ],
  [
    "Money and batches",
    [
      {
        title: "Requests that hold credit",
        unit: "short",
        queries: [["sum by (job) (gapura_holds{$release})", "{{job}}"]],
      },
      {
        title: "Slowest stores, 99%",
        unit: "s",
        queries: [
          [
            "histogram_quantile(0.99, sum by (le, store, operation) (rate(gapura_store_seconds_bucket{$release}[$__rate_interval])))",
            "{{store}} {{operation}}",
          ],
        ],
      },
      {
        title: "Event loop, worst",
        unit: "s",
        queries: [["max by (job) (gapura_event_loop_lag_seconds{$release})", "{{job}}"]],
      },
      {
        title: "Stores that pods can use",
        unit: "short",
        queries: [
          ['min by (check) (gapura_ready{$release,check=~"postgres|redis|ledger"})', "{{check}}, worst pod"],
        ],
      },
      {
        title: "Charges on their way to the ledger",
        unit: "short",
        queries: [["max by (shard) (gapura_usage_lag_entries{$release})", "shard {{shard}}"]],
      },
      {
        title: "Parked charges, lost credits",
        unit: "short",
        queries: [
          ["max by (job) (gapura_dead_letters{$release})", "{{job}}: dead letters"],
          ["sum by (job) (gapura_ledger_lost_credits_total{$release})", "{{job}}: credits lost by Postgres"],
        ],
      },
      {
        title: "Batch items",
        unit: "short",
        queries: [["max by (state) (gapura_batch_items{$release})", "{{state}}"]],
      },
      {
        title: "Batch results that Postgres refuses",
        unit: "short",
        queries: [
          ["sum by (job) (gapura_batch_results_refused{$release})", "{{job}}: wait"],
          ["sum by (outcome) (gapura_batch_results_given_up_total{$release})", "{{outcome}}"],
        ],
      },
      {
        title: "Oldest batch item",
        unit: "s",
        queries: [["max by (job) (gapura_batch_oldest_item_seconds{$release})", "{{job}}"]],
      },
      {
        title: "Bytes of bodies",
        unit: "bytes",
        queries: [["sum by (job) (gapura_body_bytes{$release})", "{{job}}"]],
      },
    ],
  ],
  [
    "Configuration and operator",
    [
      {
        title: "Configurations served",
        unit: "short",
        queries: [["count by (hash) (gapura_config_info{$release} == 1)", "{{hash}}"]],
      },
      {
        title: "Configurations looked at",
        unit: "short",
        queries: [
          [
            "sum by (outcome) (increase(gapura_config_reloads_total{$release}[$__rate_interval]))",
            "{{outcome}}",
          ],
        ],
      },
      {
        title: "Versions",
        unit: "short",
        queries: [
          ["count by (version) (gapura_build_info{$release})", "data plane {{version}}"],
          ["count by (version) (gapura_operator_build_info{$release})", "operator {{version}}"],
        ],
      },
      {
        title: "Operators that lead, ready pods, silent pods",
        unit: "short",
        queries: [
          ["sum by (job) (gapura_operator_leading{$release})", "{{job}}: leading"],
          ["max by (job) (gapura_operator_ready_pods{$release})", "{{job}}: ready pods"],
          ["max by (job) (gapura_operator_silent_pods{$release})", "{{job}}: silent pods"],
        ],
      },
      {
        title: "Objects",
        unit: "short",
        queries: [["max by (kind) (gapura_operator_objects{$release})", "{{kind}}"]],
      },
      {
        title: "Rounds of the operator",
        unit: "s",
        queries: quantiles("gapura_operator_pass_duration_seconds", "$release"),
      },
      {
        title: "Failures of the operator",
        unit: "ops",
        queries: [
          rate("gapura_operator_faults_total", "where"),
          [
            'sum by (method, status) (rate(gapura_operator_api_calls_total{$release,status!~"2.."}[$__rate_interval]))',
            "API server: {{method}} {{status}}",
          ],
        ],
      },
    ],
  ],
];

const RELEASE = 'namespace=~"$namespace",job=~"$job"';
const datasource = { type: "prometheus", uid: "${datasource}" };

/** A Grafana variable that is filled by a query; all are chosen at first. */
const variable = (name: string, query: string) => ({
  name,
  type: "query",
  datasource,
  query,
  includeAll: true,
  multi: true,
  allValue: ".*",
  current: { text: "All", value: "$__all" },
  refresh: 2,
});

/** Three panels in a row of Grafana's 24 columns. */
const [WIDTH, HEIGHT, ACROSS] = [8, 8, 3];

/** The dashboard as Grafana imports it. */
export function dashboard(): object {
  const panels: { [key: string]: unknown }[] = [];
  let y = 0;
  for (const [title, own] of rows) {
    panels.push({
      id: panels.length + 1,
      type: "row",
      title,
      collapsed: false,
      panels: [],
      gridPos: { x: 0, y, w: 24, h: 1 },
    });
    y += 1;
    for (const [at, panel] of own.entries()) panels.push(asPanel(panel, panels.length + 1, at, y));
    y += Math.ceil(own.length / ACROSS) * HEIGHT;
  }
  return {
    title: "Gapura",
    uid: "gapura",
    tags: ["gapura"],
    timezone: "browser",
    schemaVersion: 39,
    version: 2,
    refresh: "30s",
    time: { from: "now-3h", to: "now" },
    templating: {
      list: [
        { name: "datasource", type: "datasource", query: "prometheus" },
        // Where one Prometheus sees several clusters this label distinguishes them; elsewhere it is empty.
        variable("cluster", "label_values(gapura_config_info, cluster)"),
        variable("namespace", 'label_values(gapura_config_info{cluster=~"$cluster"}, namespace)'),
        variable("job", 'label_values(gapura_config_info{cluster=~"$cluster",namespace=~"$namespace"}, job)'),
        variable("model", `label_values(gapura_requests_total{cluster=~"$cluster",${RELEASE}}, model)`),
      ],
    },
    panels,
  };
}

function asPanel(
  { title, unit, queries }: Panel,
  id: number,
  at: number,
  y: number,
): { [key: string]: unknown } {
  return {
    id,
    type: "timeseries",
    title,
    gridPos: { x: (at % ACROSS) * WIDTH, y: y + Math.floor(at / ACROSS) * HEIGHT, w: WIDTH, h: HEIGHT },
    datasource,
    fieldConfig: { defaults: { unit, min: 0 }, overrides: [] },
    options: {
      legend: { displayMode: "list", placement: "bottom" },
      tooltip: { mode: "multi", sort: "desc" },
    },
    targets: queries.map(([expr, legendFormat], index) => ({
      refId: String.fromCodePoint(65 + index),
      expr: expr.replaceAll("$release", `cluster=~"$cluster",${RELEASE}`),
      legendFormat,
    })),
  };
}
