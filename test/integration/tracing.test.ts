/** What a trace shows of a request (design.md §7), read where it is exported to. */
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { registry } from "../../dataplane/telemetry/metrics.ts";
import { openMetricsOf } from "../../dataplane/telemetry/open-metrics.ts";
import { startTracing } from "../../dataplane/telemetry/trace.ts";
import { startCollector, type Collector } from "../fakes/otlp-collector.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import { openGround, openSmallPlane } from "./batches-ground.ts";
import { bodyOf } from "./batches-world.ts";
import { hit, lookingUp, startToolsWorld, type ToolsWorld } from "./tools-world.ts";

const USAGE = { input: 11, output: 7 };
let world: ToolsWorld;
let collector: Collector;
let stop: () => Promise<void>;
beforeAll(async () => {
  world = await startToolsWorld({
    script: (request) => {
      if (request.question === "fail") return { error: { status: 400, message: "no" } };
      if (request.question === "break") return { error: { status: 500 } };
      if (request.question === "break off") return { ...text("fine"), faults: { cutAtEvent: 3 } };
      if (request.question === "break early") return { ...text("fine"), faults: { cutAtEvent: 2 } };
      if (request.question === "hang") return { ...text("fine"), faults: { hang: true } };
      if (request.question === "stall") return { ...text("fine"), faults: { stallAtEvent: 3 } };
      if (request.tools.length === 0) return text("fine", USAGE);
      return lookingUp(request);
    },
  });
});
afterAll(async () => {
  await world[Symbol.asyncDispose]();
});
beforeEach(async () => {
  collector = await startCollector();
  stop = await startTracing(`${collector.url}/v1/traces`, {
    podUid: "pod-1",
    serviceName: "gateway",
    attributes: "service.name=other,deployment.environment.name=test%20bed,broken",
  });
  return async () => {
    await stop();
    await collector[Symbol.asyncDispose]();
  };
});

const trace = "0af7651916cd43dd8448eb211c80319c";
const caller = "b7ad6b7169203331";

/** Asked without a client library: those trace as well, and this process is theirs, too. */
async function ask(model: string, question: string, more: object = {}): Promise<number> {
  const body = { model, max_tokens: 100, messages: [{ role: "user", content: question }], ...more };
  const response = await world.server.fetch("/v1/messages", {
    method: "POST",
    headers: { "content-type": "application/json", traceparent: `00-${trace}-${caller}-01` },
    body: JSON.stringify(body),
  });
  await response.text();
  return response.status;
}

/** Ends the export and returns the request's span and those below it. */
async function exported() {
  await stop();
  const [request, ...more] = collector.spans.filter(({ kind }) => kind === "SERVER");
  if (request === undefined || more.length > 0) throw new Error("not one span of a request");
  expect(request).toMatchObject({ name: "POST /v1/messages", traceId: trace, parentId: caller });
  // What OTEL_SERVICE_NAME says wins over OTEL_RESOURCE_ATTRIBUTES, and that over our own.
  expect(request.resource).toEqual({
    "service.name": "gateway",
    "service.instance.id": "pod-1",
    "deployment.environment.name": "test bed",
  });
  const below = collector.spans.filter((span) => span !== request);
  for (const span of below) {
    const kind = span.name.startsWith("chat ") ? "CLIENT" : "INTERNAL";
    expect(span).toMatchObject({ kind, traceId: trace, parentId: request.spanId });
  }
  return { request, below };
}

test.each([
  { stream: false, model: "m-messages", path: "relay" },
  { stream: true, model: "m-messages", path: "relay" },
  { stream: false, model: "m-chat", path: "convert" },
  { stream: true, model: "m-chat", path: "convert" },
])("a request of one iteration: $path, stream: $stream", async ({ stream, model, path }) => {
  expect(await ask(model, "hello", { stream })).toBe(200);
  const { request, below } = await exported();
  expect(request.attributes).toMatchObject({
    "http.request.method": "POST",
    "http.route": "/v1/messages",
    "http.response.status_code": 200,
    "gapura.request_id": expect.stringMatching(/^req_/),
    "gen_ai.request.model": model,
    "gapura.path": path,
  });
  expect(below.map(({ name }) => name)).toEqual(["hold", "settle", `chat ${model}`]);
  expect(below[0]?.attributes).toMatchObject({ "gapura.hold.operation": "open" });
  expect(below[2]?.attributes).toEqual({
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": path === "relay" ? "anthropic" : "openai",
    "gen_ai.request.model": model,
    "gen_ai.request.stream": stream,
    "gen_ai.usage.input_tokens": USAGE.input,
    "gen_ai.usage.output_tokens": USAGE.output,
    "gapura.iteration": 1,
    "gapura.tries": 1,
    "gapura.upstream": "primary",
  });
});

test("a tool loop: each iteration, each tool call, each hold", async () => {
  const tools = [{ type: "web_search_20250305", name: "web_search" }];
  expect(await ask("m-chat", "search for gates", { tools })).toBe(200);
  const { request, below } = await exported();
  expect(request.attributes).toMatchObject({ "gapura.path": "tools" });
  expect(below.map(({ name }) => name)).toEqual([
    "hold",
    "chat m-chat",
    "execute_tool web_search",
    "hold",
    "chat m-chat",
    "settle",
  ]);
  expect(below[1]?.attributes).toMatchObject({ "gapura.iteration": 1, "gen_ai.request.model": "m-chat" });
  expect(below[2]?.attributes).toMatchObject({
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "web_search",
    "gapura.tool.outcome": "ok",
  });
  expect(below[3]?.attributes).toMatchObject({
    "gapura.hold.operation": "advance",
    "gapura.hold.covered": true,
  });
  expect(below[4]?.attributes).toMatchObject({ "gapura.iteration": 2, "gapura.upstream": "primary" });
  expect(Number(below[4]?.attributes["gen_ai.usage.output_tokens"])).toBeGreaterThan(0);
  // Neither what was said nor who may say it.
  const sent = collector.bodies.join("\n");
  for (const secret of [sampleKeys.inference, "search for gates", hit.title, hit.url])
    expect(sent).not.toContain(secret);
});

test("an upstream with propagateTrace learns of the trace, as a child of the call to it", async () => {
  expect(await ask("m-chat", "hello")).toBe(200);
  const told = world.upstream.requests.at(-1)?.headers["traceparent"];
  expect(await ask("m-messages", "hello")).toBe(200);
  expect(world.upstream.requests.at(-1)?.headers["traceparent"]).toBe(undefined);
  await stop();
  const [call] = collector.spans.filter(({ name }) => name === "chat m-chat");
  expect(told).toBe(`00-${trace}-${call?.spanId}-01`);
});

test("what fails is told by its code, never by an upstream's words", async () => {
  expect(await ask("m-messages", "fail")).toBe(400);
  const { request, below } = await exported();
  expect(request.attributes).toMatchObject({
    "http.response.status_code": 400,
    "error.type": "invalid_request",
  });
  expect(below.find(({ kind }) => kind === "CLIENT")).toMatchObject({
    error: "invalid_request",
    attributes: { "error.type": "invalid_request" },
  });
});

test("rule 14.3: a request's span is in error when we failed, not when its client did", async () => {
  expect(await ask("m-messages", "fail")).toBe(400);
  expect(await ask("unknown", "hello")).toBe(404);
  expect(await ask("m-messages", "break")).toBe(502);
  expect(await ask("m-messages", "break off", { stream: true })).toBe(200);
  await stop();
  const requests = collector.spans.filter(({ kind }) => kind === "SERVER");
  expect(requests.map(({ attributes, error }) => [attributes["http.response.status_code"], error])).toEqual([
    [400, null],
    [404, null],
    [502, "upstream_error"],
    [200, "upstream_error"],
  ]);
});

const searching = { tools: [{ type: "web_search_20250305", name: "web_search" }] };

test.each([
  { question: "break", status: 502, told: { status: 500, fault: "server_error", reason: "api_error" } },
  { question: "break early", status: 200, told: { status: 200, fault: "cut", reason: "cut" } },
])("rule 14.3: the span of a call that failed tells why: $question", async ({ question, status, told }) => {
  const ways = [{ model: "m-messages" }, { model: "m-chat" }, { model: "m-chat", ...searching }];
  for (const { model, ...more } of ways)
    expect(await ask(model, question, { stream: true, ...more })).toBe(status);
  await stop();
  const calls = collector.spans.filter(({ kind }) => kind === "CLIENT");
  expect(calls).toHaveLength(ways.length);
  for (const { error, attributes } of calls)
    expect({ error, attributes }).toMatchObject({
      error: "upstream_error",
      attributes: {
        "error.type": "upstream_error",
        "http.response.status_code": told.status,
        "gapura.fault": told.fault,
        "gapura.reason": told.reason,
      },
    });
});

test.each(["hang", "stall"])(
  "a call whose client left was cancelled, and is no fault of ours: %s",
  async (question) => {
    const body = JSON.stringify({
      model: "m-messages",
      max_tokens: 100,
      stream: true,
      messages: [{ role: "user", content: question }],
    });
    const before = world.upstream.requests.length;
    const client = new AbortController();
    const answer = world.server.fetch("/v1/messages", {
      method: "POST",
      headers: { "content-type": "application/json", traceparent: `00-${trace}-${caller}-01` },
      body,
      signal: client.signal,
    });
    if (question === "stall") await answer;
    else await expect.poll(() => world.upstream.requests.length).toBe(before + 1);
    client.abort();
    await answer.catch(() => {});
    // The call is read on for up to two seconds (rule 1.11).
    const underWay = /^gapura_upstream_active_requests\{.*\} [1-9]/m;
    await expect.poll(() => registry.metrics(), { timeout: 10_000 }).not.toMatch(underWay);
    await stop();
    expect(collector.spans.find(({ kind }) => kind === "CLIENT")).toMatchObject({
      error: "cancelled",
      attributes: { "error.type": "cancelled", "gapura.fault": "cancelled" },
    });
  },
);

test("a batch's item is traced as a live request is: found by its id, and in error only when we failed", async () => {
  const ground = await openGround();
  const plane = await openSmallPlane(ground);
  try {
    const params = bodyOf.messages("Hello", { model: "unknown" });
    const { body } = await plane.json("POST", "/v1/messages/batches", {
      requests: [
        { custom_id: "well", params: bodyOf.messages() },
        { custom_id: "unknown", params },
      ],
    });
    await plane.ended(`/v1/messages/batches/${String(body["id"])}`);
    await stop();
    const id = expect.stringMatching(/^req_/);
    const items = collector.spans.filter(({ name }) => name === "batch item");
    const told = items.map(({ kind, error, attributes }) => ({ kind, error, attributes }));
    expect(
      told.toSorted((a, b) => Object.keys(b.attributes).length - Object.keys(a.attributes).length),
    ).toEqual([
      {
        kind: "SERVER",
        error: null,
        attributes: {
          "gapura.request_id": id,
          "gapura.path": "relay",
          "gen_ai.request.model": "m-messages",
          "http.response.status_code": 200,
        },
      },
      {
        kind: "SERVER",
        error: null,
        attributes: {
          "gapura.request_id": id,
          "http.response.status_code": 404,
          "error.type": "model_not_found",
        },
      },
    ]);
  } finally {
    await plane.close();
    await ground.close();
  }
});

test("histograms point to traces that are kept, in OpenMetrics only", async () => {
  expect(await ask("m-chat", "hello")).toBe(200);
  expect(await openMetricsOf(registry)).toMatch(
    new RegExp(`^gapura_request_duration_seconds_bucket.*model="m-chat".* # \\{trace_id="${trace}"\\} `, "m"),
  );
  expect(await registry.metrics()).not.toContain(trace);
});

test("without an endpoint nothing is traced", async () => {
  await stop();
  expect(await ask("m-messages", "hello")).toBe(200);
  expect(collector.spans).toEqual([]);
});
