import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { expect, test } from "vitest";
import { registry as ours } from "./metrics.ts";
import { openMetricsOf, takesOpenMetrics } from "./open-metrics.ts";
import { TallyCounter, TallyHistogram } from "./tally.ts";

test("an exemplar stands behind its bucket, the newest of each, and the plain text stays as it is", async () => {
  const registry = new Registry();
  const registers = [registry];
  new Gauge({ name: "open", help: "Now.", registers }).set(3);
  new Counter({ name: "told_total", help: "Told.", registers }).inc(2);
  new TallyCounter({ name: "seen_total", help: "Seen.", labelNames: ["of"], registers }).series({
    of: 'a"b',
  }).value = 4;
  new Histogram({ name: "old_seconds", help: "Old.", buckets: [1], registers }).observe(0.5);
  const series = new TallyHistogram({
    name: "took_seconds",
    help: "Took.",
    labelNames: ["model"],
    buckets: [0.1, 1],
    registers,
  }).series({ model: "m" });
  const before = await registry.metrics();
  series.observe(0.05, { traceId: "aa", at: 1_700_000_000.5 });
  series.observe(0.07, { traceId: "bb", at: 1_700_000_001 });
  series.observe(0.5);
  series.observe(7, { traceId: "cc", at: 1_700_000_002 });
  const open = await openMetricsOf(registry);
  expect(open.split("\n").filter((line) => !line.startsWith("# HELP"))).toEqual([
    "# TYPE open gauge",
    "open 3",
    "# TYPE told counter",
    "told_total 2",
    "# TYPE seen counter",
    'seen_total{of="a\\"b"} 4',
    "# TYPE old_seconds histogram",
    'old_seconds_bucket{le="1"} 1',
    'old_seconds_bucket{le="+Inf"} 1',
    "old_seconds_sum 0.5",
    "old_seconds_count 1",
    "# TYPE took_seconds histogram",
    'took_seconds_bucket{le="0.1",model="m"} 2 # {trace_id="bb"} 0.07 1700000001',
    'took_seconds_bucket{le="1",model="m"} 3',
    'took_seconds_bucket{le="+Inf",model="m"} 4 # {trace_id="cc"} 7 1700000002',
    'took_seconds_sum{model="m"} 7.62',
    'took_seconds_count{model="m"} 4',
    "# EOF",
    "",
  ]);
  const after = await registry.metrics();
  expect(after).not.toContain("trace_id");
  const names = (text: string) => text.split("\n").filter((line) => line.startsWith("# TYPE"));
  expect(names(after)).toEqual(names(before));
});

test("all of our counters are called so that both forms name them alike", async () => {
  const counters = (await ours.getMetricsAsJSON()).filter(({ type }) => String(type) === "counter");
  expect(counters.length).toBeGreaterThan(10);
  expect(counters.map(({ name }) => name).filter((name) => !name.endsWith("_total"))).toEqual([]);
});

test.each([
  [undefined, false],
  ["text/plain", false],
  ["*/*", false],
  ["application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", true],
  ["text/plain;q=0.3, application/openmetrics-text; version=1.0.0", true],
  ["application/openmetrics-text;q=0,text/plain", false],
])("Accept: %s", (accept, takes) => {
  expect(takesOpenMetrics(accept)).toBe(takes);
});
