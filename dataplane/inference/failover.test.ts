/**
 * What a client sees when its route has more than one upstream and the first one fails: before the first byte the next
 * one answers, in the client's dialect whatever it speaks; afterwards the fault is told, and nobody else is asked.
 */
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf, type TestCall } from "../../test/fakes/inference.ts";
import { noTools } from "../../test/fakes/no-tools.ts";
import { text, type Faults } from "../../test/fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../../test/fakes/upstream/server.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";
import { sealing } from "../lib/seal.ts";
import { metrics } from "../telemetry/metrics.ts";
import { Upstreams } from "../upstream/ask.ts";
import { newUpstreamDispatcher } from "../upstream/dispatcher.ts";
import { createServe, type Serve } from "./serve.ts";

const usage = { input: 11, output: 7 };
const answer = text("Hello from the second.", usage);
const cells = dialects.flatMap((client) => dialects.map((second) => [client, second] as const));

let first: FakeUpstream;
let second: FakeUpstream;
let dispatcher: Dispatcher;
let serve: Serve;

beforeAll(async () => {
  [first, second] = await Promise.all([startUpstream(), startUpstream()]);
  dispatcher = newUpstreamDispatcher();
});
beforeEach(() => {
  first.reset();
  second.reset();
  second.next(answer);
  serve = createServe(new Upstreams(dispatcher), sealing([{ id: "t", key: Buffer.alloc(32) }]), noTools);
});
afterAll(async () => {
  await dispatcher.destroy();
  await Promise.all([first.close(), second.close()]);
});

/** A route whose first upstream speaks the client's dialect; the second one another, perhaps. */
function callTo(client: Dialect, other: Dialect, stream: boolean, requestMs = 10_000): TestCall {
  const upstreams = [
    upstreamOf(first.url, client, { name: "first" }),
    upstreamOf(second.url, other, { name: "second", priority: 1 }),
  ];
  const route = routeTo(upstreams, {
    retries: { attempts: 2, retryOn: ["connect", "rate_limited", "server_error", "first_byte_timeout"] },
    timeouts: { connectMs: 1_000, firstByteMs: 5_000, streamIdleMs: 5_000, requestMs },
  });
  const messages = [{ role: "user", content: "hi" }];
  const content = client === "responses" ? { input: "hi" } : { messages, max_tokens: 50 };
  return callOf(client, snapshotOf([route]), { model: "public-model", stream, ...content });
}

const terminal = { messages: /message_stop/, chat: /\[DONE\]/, responses: /response\.completed/ };

describe.each(cells)("a %s client whose second upstream speaks %s", (client, other) => {
  test.each([
    ["whole", false],
    ["streamed", true],
  ])("gets its answer from it, %s, and pays for that one alone", async (_form, stream) => {
    first.next({ error: { status: 503 } });
    const call = callTo(client, other, stream);
    await serve(call);
    expect(call.sink.status).toBe(200);
    expect(call.sink.text).toContain("second");
    expect(call.sink.text).toContain("public-model");
    if (stream) expect(call.sink.text).toMatch(terminal[client]);
    expect(call.record).toMatchObject({
      tries: 2,
      upstream: "second",
      path: client === other ? "relay" : "convert",
    });
    expect(call.meter.opened).toHaveLength(1);
    expect(call.meter.settled).toMatchObject([{ status: "ok", upstream: "second", tokens: usage }]);
  });
});

describe.each(dialects)("a %s stream", (client) => {
  const beginnings: readonly [string, Faults][] = [
    ["an error for its first event", { errorAtEvent: { event: 0, type: "overloaded_error" } }],
    ["nothing at all", { empty: true }],
    ["a connection that breaks before the first event", { cutAtByte: 10 }],
  ];
  test.each(beginnings)("that begins with %s goes to the next upstream", async (_name, faults) => {
    first.next(withFaults(text("never seen"), faults));
    const call = callTo(client, client, true);
    await serve(call);
    expect(call.sink.text).toContain("second");
    expect(call.sink.text).toMatch(terminal[client]);
    expect(call.sink.text).not.toMatch(/"type":"error"|event: error|never seen/);
    expect(call.record.tries).toBe(2);
  });

  test("that has begun stays with its upstream: its end is an error, not another answer", async () => {
    first.next(withFaults(text("one two three four five six"), { cutAtEvent: 4 }));
    const call = callTo(client, client, true);
    await serve(call);
    expect(call.sink.text).not.toMatch(terminal[client]);
    expect(call.sink.text).toMatch(/error/);
    expect(call.record).toMatchObject({ tries: 1, upstream: "first", errorCode: "upstream_error" });
    expect(second.requests).toHaveLength(0);
  });
});

test("how many calls each upstream has under way can be read from the metrics", async () => {
  const active = async () => {
    const { values } = await metrics.upstreamActive.get();
    const mine = values.filter(({ labels }) => labels.model === "public-model");
    return Object.fromEntries(mine.map(({ labels, value }) => [String(labels.upstream), value]));
  };
  first.model("upstream-model", withFaults(text("slow"), { hang: true }));
  const calls = [1, 2, 3].map(() => callTo("chat", "chat", true));
  const served = calls.map((call) => serve(call));
  await first.arrived(3);
  expect(await active()).toMatchObject({ first: 3, second: 0 });
  for (const call of calls) call.sink.leave();
  await Promise.allSettled(served);
  expect(await active()).toMatchObject({ first: 0, second: 0 });
});

test("retries end with the request's time", async () => {
  first.model("upstream-model", withFaults(text("slow"), { hang: true }));
  const call = callTo("chat", "chat", false, 300);
  await expect(serve(call)).rejects.toMatchObject({ code: "timeout" });
  expect(second.requests).toHaveLength(0);
  expect(call.meter.released).toBe(1);
});
