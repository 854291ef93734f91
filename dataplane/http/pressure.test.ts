import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { metrics } from "../telemetry/metrics.ts";
import { inferenceRoutes } from "./routes/inference.ts";
import { modelRoutes } from "./routes/models.ts";
import { ByteBudget } from "../lib/byte-budget.ts";
import { Pressure, processProbe } from "./pressure.ts";

interface State {
  readonly delay: number;
  readonly heap: number;
  readonly resident: number;
  collected?: number;
}
const probeOf = (state: State) => ({
  loopDelayMs: () => state.delay,
  heapShare: () => state.heap,
  residentShare: () => state.resident,
  collect: () => (state.collected = (state.collected ?? 0) + 1),
});

const json = { "content-type": "application/json" };

test("an overloaded process refuses inference with 503 and retry-after, and serves again when it is over", async () => {
  const state = { delay: 0, heap: 0.1, resident: 0.1 };
  const pressure = new Pressure(probeOf(state));
  const serving = inferenceRoutes({
    meter: { open: () => Promise.reject(new Error("not metered here")) },
    serve: (call) => {
      call.sink.start(200, {});
      call.sink.end();
      return Promise.resolve();
    },
  });
  await using server = await startTestServer([serving, modelRoutes], {
    services: { shed: () => pressure.shed() },
  });
  const ask = async () => {
    pressure.sample();
    const response = await server.fetch("/v1/messages", { method: "POST", body: "{}", headers: json });
    return [response.status, response.headers.get("retry-after")];
  };
  expect(await ask()).toEqual([200, null]);
  state.delay = 10_000;
  pressure.sample();
  expect(await ask()).toEqual([503, "1"]);
  expect((await server.fetch("/v1/models")).status).toBe(200);
  Object.assign(state, { delay: 0, heap: 0.99 });
  expect(await ask()).toEqual([503, "1"]);
  Object.assign(state, { heap: 0.1, resident: 0.95 });
  expect(await ask()).toEqual([503, "1"]);
  state.resident = 0.1;
  expect(await ask()).toEqual([200, null]);
});

test("one pause of the event loop, as of a process that starts, refuses nobody", () => {
  const state = { delay: 10_000, heap: 0.1, resident: 0.1 };
  const pressure = new Pressure(probeOf(state));
  pressure.sample();
  expect(pressure.overloaded).toBe(false);
  state.delay = 0;
  pressure.sample();
  state.delay = 10_000;
  pressure.sample();
  expect(pressure.overloaded).toBe(false);
  pressure.sample();
  expect(pressure.overloaded).toBe(true);
  expect(() => pressure.shed()).toThrow("overloaded");
});

test("resident memory that is nearly used up is collected, at once and every five seconds, and its label tells", async () => {
  const state = { delay: 0, heap: 0.1, resident: 0.95, collected: 0 };
  const pressure = new Pressure(probeOf(state));
  for (let look = 0; look < 11; look += 1) pressure.sample();
  expect(state.collected).toBe(2);
  expect(pressure.overloaded).toBe(true);
  const counted = async () => {
    const { values } = await metrics.shed.get();
    return values.find(({ labels }) => labels.reason === "resident")?.value ?? 0;
  };
  const before = await counted();
  expect(() => pressure.shed()).toThrow("overloaded");
  expect(await counted()).toBe(before + 1);
  state.resident = 0.5;
  pressure.sample();
  expect(pressure.overloaded).toBe(false);
  expect(state.collected).toBe(2);
});

test("bodies that are over are freed by a collection, though nothing else is allocated", async () => {
  const probe = processProbe(1024 ** 3);
  const bodies = new ByteBudget(1024 ** 3);
  const fill = () => {
    const lease = bodies.lease("a");
    const body = Buffer.alloc(256 * 1024 * 1024, 1);
    lease.take(body.length);
    const share = probe.residentShare();
    // Used after the look: else V8 may have collected it before.
    expect(body.at(-1)).toBe(1);
    return share;
  };
  const full = fill();
  probe.collect();
  await expect.poll(() => probe.residentShare(), { timeout: 10_000 }).toBeLessThan(full - 0.2);
  probe.stop();
});

test("the probe sees a blocked event loop and forgets it", async () => {
  const probe = processProbe(1024 ** 4);
  await sleep(30);
  probe.loopDelayMs();
  for (let n = 0; n < 3; n += 1) {
    const until = performance.now() + 150;
    while (performance.now() < until);
    await sleep(1);
  }
  expect(probe.loopDelayMs()).toBeGreaterThan(50);
  expect(probe.heapShare()).toBeGreaterThan(0);
  expect(probe.residentShare()).toBeGreaterThan(0);
  probe.stop();
});
