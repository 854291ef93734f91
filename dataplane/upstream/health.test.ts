import { beforeEach, expect, test } from "vitest";
import { routeTo, upstreamOf } from "../../test/fakes/inference.ts";
import { metrics } from "../telemetry/metrics.ts";
import { FAILURES_TO_EJECT, Health } from "./health.ts";

let now: number;
let health: Health;
const upstream = upstreamOf("http://x", "chat");
const route = routeTo([upstream], { model: "health-model" });

beforeEach(() => {
  now = 1_000_000;
  health = new Health({ now: () => now });
  // What another test left there.
  metrics.upstreamEjected.reset();
});

const outFor = () => Math.max(0, health.outUntil(route, upstream) - now);
function fail(times: number): void {
  for (let time = 0; time < times; time += 1) {
    health.asked(route, upstream);
    health.failed(route, upstream);
  }
}
async function shown(): Promise<number | undefined> {
  const { values } = await metrics.upstreamEjected.get();
  return values.find(({ labels }) => labels.model === "health-model")?.value;
}

test("rule 1.14: five failures in a row eject, four do not, and a success in between starts anew", async () => {
  fail(FAILURES_TO_EJECT - 1);
  expect(outFor()).toBe(0);
  health.answered(route, upstream);
  fail(FAILURES_TO_EJECT - 1);
  expect(outFor()).toBe(0);
  fail(1);
  expect(outFor()).toBe(10_000);
  expect(await shown()).toBe(1);
  health.answered(route, upstream);
  expect(outFor()).toBe(0);
  expect(await shown()).toBe(0);
});

test("rule 1.14: the first ejection lasts 10 s, each further one twice as long, at most 60 s", () => {
  fail(FAILURES_TO_EJECT);
  const lasted: number[] = [];
  for (let time = 0; time < 5; time += 1) {
    lasted.push(outFor());
    now += outFor();
    fail(1);
  }
  expect(lasted).toEqual([10_000, 20_000, 40_000, 60_000, 60_000]);
});

test("requests that were under way when it was taken out do not lengthen the ejection", () => {
  fail(FAILURES_TO_EJECT);
  now += 4_000;
  fail(20);
  expect(outFor()).toBe(6_000);
});

test("after an ejection one request probes, and the others stay away until it is known how that ended", () => {
  fail(FAILURES_TO_EJECT);
  now += 10_000;
  expect(outFor()).toBe(0);
  health.asked(route, upstream);
  expect(outFor()).toBeGreaterThan(0);
  health.undecided(route, upstream);
  expect(outFor()).toBe(0);
  health.asked(route, upstream);
  health.answered(route, upstream);
  expect(outFor()).toBe(0);
  fail(FAILURES_TO_EJECT - 1);
  expect(outFor()).toBe(0);
});

test("a probe ends by itself after 10 s, however many ask meanwhile", () => {
  fail(5);
  now += 10_000;
  health.asked(route, upstream);
  now += 4_000;
  health.asked(route, upstream);
  expect(outFor()).toBe(6_000);
});

test("who failed and was not taken out is asked by all at once", () => {
  health.undecided(route, upstream);
  health.asked(route, upstream);
  expect(outFor()).toBe(0);
  fail(1);
  health.asked(route, upstream);
  expect(outFor()).toBe(0);
});

test("it is known as taken out from the fifth failure to the end of its ejection, and while it is probed", () => {
  const ejected = () => health.isEjected(route, upstream);
  expect(ejected()).toBe(false);
  fail(4);
  expect(ejected()).toBe(false);
  fail(1);
  expect(ejected()).toBe(true);
  now += 9_999;
  expect(ejected()).toBe(true);
  now += 1;
  expect(ejected()).toBe(false);
  health.asked(route, upstream);
  expect(ejected()).toBe(true);
  health.answered(route, upstream);
  expect(ejected()).toBe(false);
  health.rests(route, upstream, 3_000);
  expect(ejected()).toBe(false);
});

test("rule 1.14: a 429 never ejects, but the time it names is skipped over", async () => {
  for (let time = 0; time < 20; time += 1) health.rests(route, upstream, 3_000);
  expect(outFor()).toBe(3_000);
  expect(await shown()).toBe(undefined);
  now += 3_000;
  expect(outFor()).toBe(0);
});

test("one upstream's trouble leaves that of others, until ten thousand are in trouble", () => {
  fail(5);
  for (let n = 1; n < 10_000; n += 1) health.failed(routeTo([upstream], { model: `health-${n}` }), upstream);
  expect(outFor()).toBe(10_000);
  health.failed(routeTo([upstream], { model: "health-10000" }), upstream);
  expect(outFor()).toBe(0);
});

test("a namespace with very many upstreams in trouble makes its own forgotten, not those of others", async () => {
  fail(FAILURES_TO_EJECT);
  const source = { ...route.source, namespace: "greedy" };
  const greedy = (n: number) => routeTo([upstream], { model: `greedy-${n}`, source });
  for (let time = 0; time < FAILURES_TO_EJECT; time += 1) health.failed(greedy(0), upstream);
  for (let n = 1; n < 10_000; n += 1) health.failed(greedy(n), upstream);
  expect(outFor()).toBe(10_000);
  expect(await shown()).toBe(1);
  expect(health.outUntil(greedy(0), upstream)).toBe(0);
  // What is forgotten is not shown as taken out for ever.
  const { values } = await metrics.upstreamEjected.get();
  expect(values.map(({ labels }) => labels.model)).toEqual(["health-model"]);
});

test("an upstream that is declared elsewhere starts without a past", () => {
  fail(FAILURES_TO_EJECT);
  expect(health.outUntil(route, { ...upstream, url: "http://y/v1" })).toBe(0);
  expect(health.outUntil(routeTo([upstream], { model: "other" }), upstream)).toBe(0);
});

test("what is not served any more is not shown as taken out for ever", async () => {
  const served = (...upstreams: (typeof upstream)[]) =>
    health.serve([routeTo(upstreams, { model: "health-model" })]);
  served(upstream);
  fail(FAILURES_TO_EJECT);
  // Another edit leaves its past.
  served({ ...upstream, priority: 7 });
  expect([await shown(), outFor()]).toEqual([1, 10_000]);
  // Moved: the alert was about the address before.
  served({ ...upstream, url: "http://y/v1" });
  expect([await shown(), outFor()]).toEqual([undefined, 0]);
  // A call that was under way there fails late.
  fail(FAILURES_TO_EJECT);
  health.rests(route, upstream, 60_000);
  expect(await shown()).toBe(undefined);
  // Drained, and given traffic again.
  served(upstream);
  expect(outFor()).toBe(0);
  fail(FAILURES_TO_EJECT);
  expect(await shown()).toBe(1);
  served({ ...upstream, weight: 0 }, { ...upstream, name: "other" });
  expect([await shown(), outFor()]).toEqual([undefined, 0]);
  served(upstream);
  fail(FAILURES_TO_EJECT);
  expect(await shown()).toBe(1);
  health.serve([]);
  expect(await shown()).toBe(undefined);
});

test("of two routes of one model, as namespaces that do not trust each other have them, the one that is well does not hide the other's ejection", async () => {
  const twin = routeTo([upstream], {
    model: "health-model",
    source: { ...route.source, namespace: "team", uid: "twin" },
  });
  const failTwin = () => {
    for (let time = 0; time < FAILURES_TO_EJECT; time += 1) health.failed(twin, upstream);
  };
  fail(FAILURES_TO_EJECT);
  failTwin();
  health.answered(twin, upstream);
  expect(await shown()).toBe(1);
  failTwin();
  // The other route goes.
  health.serve([route]);
  expect(await shown()).toBe(1);
  health.answered(route, upstream);
  expect(await shown()).toBe(0);
});
