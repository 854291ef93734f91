import { Histogram, Registry } from "prom-client";
import { expect, test } from "vitest";
import { TallyCounter, TallyGauge, TallyHistogram } from "./tally.ts";

const registry = new Registry();
const common = { help: "?", registers: [registry] };

test("what was added to a counter's series is counted once, beside what prom-client counted itself", async () => {
  const counter = new TallyCounter({ ...common, name: "answers_total", labelNames: ["model"] });
  const series = counter.series({ model: "one" });
  series.value += 2;
  counter.inc({ model: "one" });
  counter.series({ model: "two" });
  const shown = () => registry.getSingleMetricAsString("answers_total");
  expect(await shown()).toContain('answers_total{model="one"} 3\n');
  expect(await shown()).toContain('answers_total{model="one"} 3\nanswers_total{model="two"} 0');
  series.value += 1;
  expect(await shown()).toContain('answers_total{model="one"} 4\n');
});

test("a gauge's series stands where its value stands", async () => {
  const gauge = new TallyGauge({ ...common, name: "running", labelNames: ["model"] });
  const series = gauge.series({ model: "one" });
  const shown = async () => (await gauge.get()).values;
  series.value += 2;
  expect(await shown()).toMatchObject([{ labels: { model: "one" }, value: 2 }]);
  series.value -= 1;
  expect(await shown()).toMatchObject([{ value: 1 }]);
});

test("the same labels are the same series", () => {
  const counter = new TallyCounter({ ...common, name: "calls_total", labelNames: ["model", "status"] });
  expect(counter.series({ model: "one", status: "200" })).toBe(
    counter.series({ model: "one", status: "200" }),
  );
  expect(counter.series({ model: "one", status: "200" })).not.toBe(
    counter.series({ model: "one", status: "500" }),
  );
});

test("a histogram tells what prom-client's own would", async () => {
  const configuration = {
    name: "seconds",
    help: "How long.",
    labelNames: ["model", "dialect"] as const,
    buckets: [0.1, 0.5, 2],
  };
  const [ours, theirs] = [new Registry(), new Registry()];
  const tally = new TallyHistogram({ ...configuration, registers: [ours] });
  const histogram = new Histogram({ ...configuration, registers: [theirs] });
  for (const [model, seconds] of [
    ["one", 0.1],
    ["one", 0.3],
    ['two "quoted"', 0],
    ["one", 2.5],
    ["one", 0.5],
  ] as const) {
    const labels = { model, dialect: "chat" };
    tally.series(labels).observe(seconds);
    histogram.observe(labels, seconds);
  }
  expect(await ours.metrics()).toBe(await theirs.metrics());
});
