/** Rules 1.16, 2.13: a request that an ending process no longer waits for gets an error on every way, and is charged for what was seen. */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { text, toolCall } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import { Shutdown } from "../lib/shutdown.ts";
import { metrics } from "../telemetry/metrics.ts";

let searching = Promise.withResolvers<void>();
const { fake, serve } = await serveOneUpstream(async (_name, _input, _scope, signal) => {
  searching.resolve();
  await once(signal, "abort");
  signal.throwIfAborted();
  return { kind: "hits", hits: [], posts: 0, profiles: 0 };
});
const words = text("one two three four five");

describe.each(ways.map((way) => [nameOf(way), way] as const))("%s", (_, way) => {
  test.each([
    ["before the answer", { hang: true }],
    ["in its middle", way.stream ? { stallAtEvent: 6 } : { stallAtByte: 100 }],
  ])("%s", async (when, faults) => {
    const faultsBefore = await metrics.streamFaults.get();
    const shutdown = new Shutdown();
    fake.next(withFaults(words, faults));
    const call = { ...callOn(fake.url, way), shutdown };
    const served = serve(call).then(
      () => null,
      (error: unknown) => error,
    );
    await fake.arrived(1);
    const isTold = way.stream && when !== "before the answer";
    // By then the first hundred bytes have come.
    if (!way.stream && when !== "before the answer") await sleep(100);
    if (isTold) await expect.poll(() => call.sink.text).toMatch(/one/);
    shutdown.tell();
    const error = await served;
    if (isTold) {
      expect(error).toBe(null);
      expect(call.sink.text).toMatch(/could not wait for the end/);
      expect(call.sink.ended).toBe(true);
      expect(call.summary.errorCode).toBe("unavailable");
      expect(call.meter.settled).toMatchObject([{ status: "error" }]);
    } else {
      expect(error).toMatchObject({ code: "unavailable", retryAfterSeconds: 1 });
      expect(call.sink.status).toBe(0);
      expect(call.meter.settled.length + call.meter.released).toBe(1);
    }
    // It does not count as a fault of the upstream.
    expect(await metrics.streamFaults.get()).toEqual(faultsBefore);
  });

  test("in the pause before another try", async () => {
    const shutdown = new Shutdown();
    fake.next({ error: { status: 429 }, headers: { "retry-after": "4" } });
    const retries = { attempts: 3, retryOn: ["rate_limited" as const] };
    const call = { ...callOn(fake.url, way, { route: { retries } }), shutdown };
    const served = serve(call).then(
      () => null,
      (error: unknown) => error,
    );
    await expect.poll(() => fake.requests.map(({ outcome }) => outcome)).toEqual(["answered"]);
    const told = performance.now();
    shutdown.tell();
    expect(await served).toMatchObject({ code: "unavailable", retryAfterSeconds: 1 });
    expect(performance.now() - told).toBeLessThan(2_000);
    expect(fake.requests).toHaveLength(1);
    expect(call.meter).toMatchObject({ settled: [], released: 1 });
  });

  test("and nothing is asked any more", async () => {
    const shutdown = new Shutdown();
    shutdown.tell();
    const call = { ...callOn(fake.url, way), shutdown };
    await expect(serve(call)).rejects.toMatchObject({ code: "unavailable" });
    expect(call.meter).toMatchObject({ settled: [], released: 1 });
    expect(fake.requests).toHaveLength(0);
  });
});

const tools = ways.filter(({ path }) => path === "tools");
test.each(tools.map((way) => [nameOf(way), way] as const))("%s, while a tool runs", async (_, way) => {
  searching = Promise.withResolvers();
  fake.next(toolCall("web_search", { query: "gates" }));
  const shutdown = new Shutdown();
  const call = { ...callOn(fake.url, way), shutdown };
  const served = serve(call).then(
    () => null,
    (error: unknown) => error,
  );
  await searching.promise;
  shutdown.tell();
  const error = await served;
  expect(fake.requests).toHaveLength(1);
  expect(call.meter.settled).toMatchObject([{ iterations: 1, tools: { webSearches: 0 } }]);
  if (way.stream) {
    expect([call.sink.ended, call.sink.text]).toEqual([true, expect.stringMatching(/"error"/)]);
    expect(call.sink.text).not.toMatch(/message_stop|response\.completed|\[DONE\]/);
  } else if (way.client === "messages") {
    expect(JSON.parse(call.sink.text)).toMatchObject({ stop_reason: "pause_turn" });
  } else expect(error).toMatchObject({ code: "unavailable", retry: false });
});
