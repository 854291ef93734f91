import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { inferenceRoutes } from "./routes/inference.ts";
import { modelRoutes } from "./routes/models.ts";
import { Pressure, processProbe } from "./pressure.ts";

const json = { "content-type": "application/json" };

test("an overloaded process refuses inference with 503 and retry-after, and serves again when it is over", async () => {
  const state = { delay: 0, heap: 0.1 };
  const pressure = new Pressure({ loopDelayMs: () => state.delay, heapShare: () => state.heap });
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
  expect(await ask()).toEqual([503, "1"]);
  expect((await server.fetch("/v1/models")).status).toBe(200);
  Object.assign(state, { delay: 0, heap: 0.99 });
  expect(await ask()).toEqual([503, "1"]);
  state.heap = 0.1;
  expect(await ask()).toEqual([200, null]);
});

test("the probe sees a blocked event loop and forgets it", async () => {
  const probe = processProbe();
  await sleep(30);
  probe.loopDelayMs();
  for (let n = 0; n < 3; n += 1) {
    const until = performance.now() + 150;
    while (performance.now() < until);
    await sleep(1);
  }
  expect(probe.loopDelayMs()).toBeGreaterThan(50);
  expect(probe.heapShare()).toBeGreaterThan(0);
  probe.stop();
});
