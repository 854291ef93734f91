import { describe, expect, test } from "vitest";
import { median, percentile, ratio, renderTable } from "./figures.ts";
import { answers, requestFor } from "./payloads.ts";
import { parseRss, parseStat } from "./proc.ts";
import { callsPerRequest, demandOf, fitLine, LOADED, type Costs, type Target } from "./scale-model.ts";
import { barChart, timeLine } from "./svg.ts";

test("CPU time and parent are read behind a program name with spaces and parentheses", () => {
  const rest = "S 7 1 1 0 -1 4194304 1 0 0 0 120 34 0 0 20 0 1 0 6";
  expect(parseStat(`42 (node (a b) c) ${rest}`)).toEqual({ parent: 7, cpuMicros: 1_540_000 });
});

test("resident memory is read in bytes", () => {
  expect(parseRss("Name:\tnode\nVmRSS:\t    2048 kB\nThreads:\t1\n")).toBe(2 * 1024 * 1024);
  expect(parseRss("Name:\tkthreadd\n")).toBe(0);
});

test.each([
  [[3], 3],
  [[1, 9, 5], 5],
  [[1, 2, 3, 10], 2.5],
  [[], Number.NaN],
])("the median of %j is %d", (values, expected) => {
  expect(median(values)).toBe(expected);
});

test("a percentile lies between its neighbours", () => {
  expect(percentile([0, 10], 0.99)).toBeCloseTo(9.9);
});

test("a table lines up its columns and says ratios", () => {
  const table = renderTable({ title: "CPU", columns: ["", "µs"], rows: [["bare", ratio(3, 2)]] });
  expect(table).toBe("**CPU**\n\n|      |     µs |\n|------|-------:|\n| bare | 1.50 × |");
});

test("a chart escapes its text and draws one bar a value and the limit", () => {
  const svg = barChart({
    title: "a < b & c",
    unit: "µs",
    bars: [
      { label: "one", value: 1 },
      { label: "two", value: 200 },
    ],
    limit: { label: "goal", value: 100 },
  });
  expect(svg).toContain("a &lt; b &amp; c (µs)");
  expect(svg.match(/<rect x=/g)).toHaveLength(2);
  expect(svg).toContain(">goal</text>");
});

describe("the raw upstream's answers", () => {
  test("the JSON answer is 1 kB", () => {
    const [head, body] = answers.json.toString().split("\r\n\r\n");
    expect(body).toHaveLength(1024);
    expect(head).toContain("content-length: 1024");
  });

  test.each(["burst", "paced", "packed", "messages"] as const)("%s has 200 events and an end", (mode) => {
    const text = answers[mode].toString();
    expect(text.match(/^data: /gm)).toHaveLength(200);
    expect(text.endsWith("0\r\n\r\n")).toBe(true);
  });

  test("a request names its length", () => {
    const [head = "", body = ""] = requestFor({ path: "/json", model: "json", stream: false })
      .toString()
      .split("\r\n\r\n");
    expect(Number(/content-length: (\d+)/.exec(head)?.[1])).toBe(Buffer.byteLength(body));
  });
});

test("a line over time begins at zero and ends with its last point", () => {
  const svg = timeLine({
    title: "memory",
    unit: "MiB",
    points: [
      { at: 0, value: 200 },
      { at: 60, value: 420 },
    ],
    marks: [{ at: 30, label: "10,000 <streams>" }],
  });
  const levels = [...svg.matchAll(/font-size="12">(\d+)</g)].map(([, level]) => level);
  expect(levels).toEqual(["0", "100", "200", "300", "400", "500"]);
  expect(svg).toContain("10,000 &lt;streams&gt;");
  expect(svg).toMatch(/points="56\.0,\d+\.\d 624\.0,\d+\.\d"/);
});

describe("the model of growth", () => {
  const costs: Costs = {
    planeMicros: 100,
    redis: { ownMicros: 10, sharedMicros: 5 },
    postgres: { ownMicros: 20, sharedMicros: 1_000 },
    walBytes: 1_000,
    idle: { planeMicros: 1_000, redisMicros: 100, postgresMicros: 50 },
  };
  const target: Target = {
    pods: 1_000,
    requestsPerSecond: 100_000,
    roundTripMs: 1,
    usageRows: 1e10,
    bytesPerMillion: 860e6,
  };

  test("what requests share costs the slope between two widths of load", () => {
    const cost = fitLine({ shared: 0.5, micros: 12.5 }, { shared: 2, micros: 20 });
    expect(cost).toEqual({ sharedMicros: 5, ownMicros: 10 });
    expect(fitLine({ shared: 1, micros: 9 }, { shared: 2, micros: 8 })).toEqual({
      sharedMicros: 0,
      ownMicros: 9,
    });
    expect(() => fitLine({ shared: 2, micros: 1 }, { shared: 2.05, micros: 9 })).toThrow(/no line/);
  });

  test("operations gather in few busy pods, and go one by one from many", () => {
    expect(callsPerRequest(target)).toBe(2);
    // 12,500 operations a second of each shard, 12.5 in the millisecond of a call.
    expect(callsPerRequest({ ...target, pods: 1 })).toBeCloseTo(2 / 12.5);
  });

  test("a part's cores are those of its requests and of pods that do nothing", () => {
    const demand = demandOf(costs, target);
    expect(demand).toMatchObject({
      planeCores: 11,
      podsAtLeast: 16,

      usageBytes: 8.6e12,
    });
    expect(demand.redisCores).toBeCloseTo(2.1);
    // With the 64 rounds of a second.
    expect(demand.postgresCores).toBeCloseTo(2.05 + 0.064);
    expect(demand.mastersAtLeast).toBe(4);
    expect(demand.walBytesPerSecond).toBe(1e8);
    expect(demand.usageDays).toBeCloseTo(1.157, 2);
  });

  test("sixteen masters at their most can do what the model calls the most", () => {
    const { mostRequestsPerSecond } = demandOf(costs, target);
    const full = demandOf(costs, { ...target, requestsPerSecond: mostRequestsPerSecond });
    expect(full.callsPerRequest).toBe(2);
    expect(full.redisCores).toBeCloseTo(16 * LOADED.redis);
  });
});
