import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Dispatcher } from "undici";
import { callOf, routeTo, snapshotOf, upstreamOf, type TestCall } from "../../test/fakes/inference.ts";
import { text, type Faults, type Step } from "../../test/fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../../test/fakes/upstream/server.ts";
import type { Route, Upstream } from "../config/schema.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";
import { dialectErrorFamily, errorStatus } from "../dialects/errors.ts";
import { ApiError } from "../lib/api-error.ts";
import { parseSealKeys, sealing } from "../lib/seal.ts";
import { Upstreams } from "../upstream/ask.ts";
import { newUpstreamDispatcher } from "../upstream/dispatcher.ts";
import { createServe, type Serve } from "./serve.ts";
import { noTools } from "../../test/fakes/no-tools.ts";

let fake: FakeUpstream;
let dispatcher: Dispatcher;
let serve: Serve;

beforeAll(async () => {
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
  serve = createServe(
    new Upstreams(dispatcher),
    sealing(parseSealKeys(`test:${Buffer.alloc(32).toString("base64")}`)),
    noTools,
  );
});
beforeEach(() => fake.reset());
afterAll(async () => {
  await dispatcher.destroy();
  await fake.close();
});

const usage = { input: 11, cacheRead: 5, cacheWrite5m: 0, cacheWrite1h: 0, output: 7, reasoning: 2 };
const hello: Step = text("Hello there, dear reader.", usage);

function bodyOf(dialect: Dialect, more: object = {}): Record<string, unknown> {
  const content = "Say hello";
  if (dialect === "responses") return { model: "public-model", input: content, ...more };
  const limit = dialect === "messages" ? { max_tokens: 100 } : {};
  return { model: "public-model", ...limit, messages: [{ role: "user", content }], ...more };
}

function callTo(
  dialect: Dialect,
  body: string | object,
  {
    upstream,
    route,
    headers,
  }: { upstream?: Partial<Upstream>; route?: Partial<Route>; headers?: object } = {},
): TestCall {
  const snapshot = snapshotOf([routeTo([upstreamOf(fake.url, dialect, upstream)], route)], ["*"], {
    "test/key": "upstream-secret",
  });
  return callOf(dialect, snapshot, body, headers ?? {});
}

/** The in-band error of each dialect. */
const inBand = {
  messages: { type: "error", error: { type: expect.any(String) as string }, request_id: "req_test" },
  chat: { error: { message: expect.any(String) as string, param: null } },
  responses: { type: "error", message: expect.any(String) as string, error: { param: null } },
};

function lastEvent(stream: string): unknown {
  const last = stream.trimEnd().split("\n\n").at(-1) ?? "";
  return JSON.parse(last.replace(/^event: error\n/, "").replace(/^data: /, ""));
}

/** Serves a call that is expected to fail before anything is sent. */
async function refusal(call: TestCall): Promise<ApiError> {
  const error = await serve(call).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(ApiError);
  expect(call.sink.status).toBe(0);
  return error as ApiError;
}

describe.each(dialects)("%s", (dialect) => {
  test("a whole answer arrives with the public model id, and is charged as the upstream reports", async () => {
    fake.next(hello);
    const call = callTo(dialect, bodyOf(dialect));
    await serve(call);
    expect(call.sink.status).toBe(200);
    expect(call.sink.headers["content-type"]).toBe("application/json");
    expect(JSON.parse(call.sink.text)).toMatchObject({ model: "public-model" });
    expect(call.sink.text).toContain("Hello there, dear reader.");
    expect(call.sink.ended).toBe(true);
    expect(call.meter.settled).toMatchObject([
      { status: "ok", estimated: false, upstream: "primary", iterations: 1, tokens: usage },
    ]);
    expect(call.meter.released).toBe(0);
    expect(fake.requests[0]?.json()).toMatchObject({ model: "upstream-model" });
    expect(call.record).toMatchObject({
      model: "public-model",
      upstream: "primary",
      path: "relay",
      tries: 1,
    });
  });

  test("a stream arrives event by event with the public model id, and is charged as reported", async () => {
    fake.next(hello);
    const call = callTo(dialect, bodyOf(dialect, { stream: true }));
    await serve(call);
    expect(call.sink.status).toBe(200);
    expect(call.sink.headers).toMatchObject({
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
    });
    expect(call.sink.text).toContain("public-model");
    expect(call.sink.text).not.toContain("upstream-model");
    expect(call.sink.ended).toBe(true);
    expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: false, tokens: usage }]);
  });

  test("streams pass byte for byte however they are cut, when the names agree", async () => {
    const plain = { upstream: { model: "public-model" } };
    const body = bodyOf(dialect, { stream: true, stream_options: { include_usage: true } });
    const seen = new Set<string>();
    for (const chunkBytes of [1, 7, 64, 100_000]) {
      fake.next(withFaults(hello, { chunkBytes }));
      const call = callTo(dialect, body, plain);
      await serve(call);
      seen.add(call.sink.text.replaceAll(/_?fake\d+|\d{10,}|[_-]\d+(?:_\d+)?(?=")/g, ""));
    }
    expect(seen.size).toBe(1);
  });

  test("the first event leaves at once, before those that came in the same packet are looked at", async () => {
    fake.next(hello);
    const apart = callTo(dialect, bodyOf(dialect, { stream: true }));
    await serve(apart);
    const server = createServer((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).end(apart.sink.text);
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const { port } = server.address() as AddressInfo;
    try {
      const call = callTo(dialect, bodyOf(dialect, { stream: true }), {
        upstream: { url: `http://127.0.0.1:${port}` },
      });
      await serve(call);
      const [first, rest] = call.sink.pieces.map((piece) => piece.toString().match(/\n\n/g)?.length ?? 0);
      expect(first).toBe(1);
      expect(rest).toBeGreaterThan(1);
      expect(call.sink.hurriedAfter).toEqual([1]);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  test("rule 1.9: the end of a stream leaves only once its charge is durable", async () => {
    fake.next(hello);
    const call = callTo(dialect, bodyOf(dialect, { stream: true }));
    const durable = Promise.withResolvers<void>();
    let before = "";
    call.meter.onSettle = () => {
      before = call.sink.text;
      setTimeout(() => {
        expect(call.sink.text).toBe(before);
        durable.resolve();
      }, 30);
      return durable.promise;
    };
    await serve(call);
    expect(before).not.toMatch(/message_stop|response\.completed|"finish_reason":"stop"|\[DONE\]/);
    expect(call.sink.text).toMatch(/message_stop|response\.completed|"finish_reason":"stop"/);
  });

  const midStream: [string, Faults, string][] = [
    ["cut", { cutAtEvent: 3 }, "upstream_error"],
    ["reset", { resetAtByte: 600, delayBetweenEventsMs: 5 }, "upstream_error"],
    ["ending without its terminal event", { noTerminal: true }, "upstream_error"],
    ["standing still", { stallAtEvent: 3 }, "timeout"],
    [
      "failing",
      { errorAtEvent: { event: 3, type: "api_error", message: "account org-123 exploded" } },
      "upstream_error",
    ],
  ];
  test.each(midStream)(
    "rule 2.13: a stream %s ends in the in-band error and is charged for what was seen",
    async (_name, faults, code) => {
      fake.next(withFaults(hello, faults));
      const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 150, requestMs: 10_000 };
      const call = callTo(dialect, bodyOf(dialect, { stream: true }), { route: { timeouts } });
      await serve(call);
      expect(call.sink.status).toBe(200);
      expect(call.sink.text).not.toContain("org-123");
      expect(call.sink.text).not.toMatch(/message_stop|response\.completed|\[DONE\]/);
      expect(lastEvent(call.sink.text)).toMatchObject(inBand[dialect]);
      const numbers = Array.from(call.sink.text.matchAll(/"sequence_number":(\d+)/g), ([, number]) =>
        Number(number),
      );
      expect(numbers).toEqual(numbers.map((_, index) => index));
      expect(call.record.errorCode).toBe(code);
      expect(call.sink.ended).toBe(true);
      expect(call.meter.settled).toMatchObject([{ status: "error" }]);
      expect(call.meter.settled[0]?.tokens.input).toBeGreaterThan(0);
    },
  );

  const wholeFaults: [string, Faults, number, boolean][] = [
    ["HTML", { html: true }, 502, true],
    ["truncated", { malformed: true }, 502, true],
    ["cut", { cutAtByte: 40 }, 502, true],
    ["empty", { empty: true }, 502, false],
  ];
  test.each(wholeFaults)("rule 1.6: a whole answer that is %s", async (_name, faults, status, charged) => {
    fake.next(withFaults(hello, faults));
    const call = callTo(dialect, bodyOf(dialect));
    const error = await refusal(call);
    expect(error.kind.status).toBe(status);
    expect(error.code).toBe("upstream_error");
    expect(call.meter.settled.map(({ status, estimated }) => [status, estimated])).toEqual(
      charged ? [["error", true]] : [],
    );
    expect(call.meter.released).toBe(charged ? 0 : 1);
  });

  test.each([
    ["HTML", { html: true }],
    ["nothing", { empty: true }],
    ["an error event", { errorAtEvent: { event: 0, type: "overloaded_error" } }],
  ])("rule 1.6: a stream that holds only %s is a real HTTP status", async (_name, faults) => {
    fake.next(withFaults(hello, faults));
    const call = callTo(dialect, bodyOf(dialect, { stream: true }));
    expect((await refusal(call)).kind.status).toBeGreaterThanOrEqual(502);
    expect(call.meter.settled).toEqual([]);
    expect(call.meter.released).toBe(1);
  });

  const statuses: [number, number, number?][] = [
    [400, 400],
    [401, 502],
    [402, 502],
    [403, 502],
    [404, 502],
    [408, 504],
    [413, 413],
    [418, 502],
    [422, 400],
    [429, 429, 5],
    [500, 502],
    [503, 503, 5],
    [529, dialect === "messages" ? 529 : 503, 5],
    [302, 502],
  ];
  test.each(statuses)("rule 2.12: upstream status %i becomes %i", async (status, expected, retryAfter) => {
    fake.next({ error: { status, message: "key sk-live-secret at https://internal.example" } });
    const call = callTo(dialect, bodyOf(dialect));
    const error = await refusal(call);
    expect(errorStatus(dialectErrorFamily[dialect], error)).toBe(expected);
    expect(error.message).not.toMatch(/sk-live|internal\.example/);
    expect(error.retryAfterSeconds).toBe(retryAfter);
    expect(call.meter.released).toBe(1);
    expect(call.meter.settled).toEqual([]);
  });

  test("an upstream that is not there is 502, one that does not answer in time 504", async () => {
    const away = callTo(dialect, bodyOf(dialect), { upstream: { url: "http://127.0.0.1:1/v1/x" } });
    expect(await refusal(away)).toMatchObject({ code: "upstream_error" });
    fake.next(withFaults(hello, { hang: true }));
    const timeouts = { connectMs: 1000, firstByteMs: 80, streamIdleMs: 2000, requestMs: 10_000 };
    const hanging = callTo(dialect, bodyOf(dialect), { route: { timeouts } });
    expect(await refusal(hanging)).toMatchObject({ code: "timeout" });
    fake.next(withFaults(hello, { hang: true }));
    const whole = { connectMs: 1000, firstByteMs: null, streamIdleMs: 2000, requestMs: 80 };
    const late = callTo(dialect, bodyOf(dialect), { route: { timeouts: whole } });
    expect(await refusal(late)).toMatchObject({ code: "timeout" });
    expect(late.meter.released).toBe(1);
  });

  test("a stream that outlasts the request's time ends in-band, and aborts the upstream", async () => {
    fake.next(withFaults(text("word ".repeat(500)), { delayBetweenEventsMs: 20 }));
    const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 2000, requestMs: 400 };
    const call = callTo(dialect, bodyOf(dialect, { stream: true }), { route: { timeouts } });
    await serve(call);
    expect(call.record.errorCode).toBe("timeout");
    expect(lastEvent(call.sink.text)).toMatchObject(inBand[dialect]);
    expect(call.meter.settled).toMatchObject([{ status: "error" }]);
    await expect.poll(() => fake.requests[0]?.outcome).toBe("aborted");
  });

  test("rule 1.11: a client that leaves aborts the upstream and pays for what was seen", async () => {
    fake.next(withFaults(hello, { delayBetweenEventsMs: 20 }));
    const call = callTo(dialect, bodyOf(dialect, { stream: true }));
    call.sink.once("piece", () => call.sink.leave());
    await serve(call);
    expect(call.meter.settled).toMatchObject([{ status: "cancelled", estimated: true }]);
    await expect.poll(() => fake.requests[0]?.outcome).toBe("aborted");
  });

  test("rule 1.11: a client that leaves before anything came pays nothing", async () => {
    fake.next(withFaults(hello, { hang: true }));
    const call = callTo(dialect, bodyOf(dialect));
    const done = serve(call);
    await fake.arrived(1);
    call.sink.leave();
    await done;
    expect(call.meter.settled).toEqual([]);
    expect(call.meter.released).toBe(1);
    await expect.poll(() => fake.requests[0]?.outcome).toBe("aborted");
  });

  test("a client that is behind pauses the upstream, and the pause is not the upstream's idleness", async () => {
    fake.next(withFaults(text("word ".repeat(300), usage), { delayAtEvent: { event: 5, ms: 30 } }));
    const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 400, requestMs: 10_000 };
    const call = callTo(dialect, bodyOf(dialect, { stream: true }), { route: { timeouts } });
    call.sink.accept = () => call.sink.pieces.length > 2;
    const timer = setInterval(() => call.sink.drain(), 600);
    await serve(call);
    clearInterval(timer);
    expect(call.meter.settled).toMatchObject([{ status: "ok" }]);
    expect(call.sink.text.match(/word/g)?.length).toBeGreaterThanOrEqual(300);
  });

  test("no usage from the upstream: charged from an estimate of what was seen", async () => {
    for (const stream of [false, true]) {
      fake.next(withFaults(text("word ".repeat(80)), { noUsage: true }));
      const call = callTo(dialect, bodyOf(dialect, { stream }));
      await serve(call);
      expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: true }]);
      expect(call.meter.settled[0]?.tokens.output).toBeGreaterThanOrEqual(80);
      expect(call.meter.settled[0]?.tokens.output).toBeLessThan(800);
    }
  });

  test("rule 1.3: of the headers only an allow-list goes up, and only our own come down", async () => {
    fake.next(hello);
    const headers = { "anthropic-version": "2026-10-21", "anthropic-beta": "a-1,b-2", "x-session-id": "s" };
    const credential = { id: "test/key", header: dialect === "messages" ? "x-api-key" : "Authorization" };
    const call = callTo(dialect, bodyOf(dialect), {
      headers,
      upstream: { credential, headers: { "x-team": "ml" } },
    });
    await serve(call);
    const sent = fake.requests[0]?.headers ?? {};
    expect(Object.keys(sent).sort()).toEqual(
      [
        "accept",
        "accept-encoding",
        ...(dialect === "messages"
          ? ["anthropic-beta", "anthropic-version", "x-api-key"]
          : ["authorization"]),
        "connection",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-team",
      ].sort(),
    );
    expect(sent[dialect === "messages" ? "x-api-key" : "authorization"]).toMatch(
      /^(Bearer )?upstream-secret$/,
    );
    expect(Object.keys(call.sink.headers).sort()).toEqual(["content-length", "content-type"]);
  });

  test("rule 1.7: a model outside of models.allow is 404 like an unknown one", async () => {
    const route = routeTo([upstreamOf(fake.url, dialect)]);
    const closed = callOf(dialect, snapshotOf([route], ["other", "publi"]), bodyOf(dialect));
    const unknown = callOf(dialect, snapshotOf([], ["*"]), bodyOf(dialect));
    const [one, other] = [await refusal(closed), await refusal(unknown)];
    expect(one).toMatchObject({ code: "model_not_found", message: other.message });
    const open = callOf(dialect, snapshotOf([route], ["pub*"]), bodyOf(dialect, { model: "alias" }));
    await serve(open);
    expect(JSON.parse(open.sink.text)).toMatchObject({ model: "public-model" });
  });
});

test("whatever a client sends beside what must be edited reaches the upstream byte for byte", async () => {
  const exotic =
    '{ "messages" :[ {"role":"user","content":"\\u00e9\\ud83d\\ude00 / \\/ é"} ],\n\t"big":123456789012345678901234567890,' +
    '"e":1.50e+10, "__proto__":{"x":1}, "model"  :  "public-model" ,"max_tokens": 100,"new_field":[ ] }';
  fake.next(hello);
  await serve(callTo("messages", exotic));
  expect(fake.requests[0]?.text).toBe(exotic.replace('"public-model"', '"upstream-model"'));
});

test("an answer's bytes come back untouched save for the model's name", async () => {
  const body =
    '{"id":"msg_1", "type":"message","content":[ {"type":"text","text":"\\u00e9"}],\r\n "model": "upstream-model",' +
    '"usage":{"input_tokens":3,"output_tokens":4,"big":123456789012345678901234567890},"future":{"a" :1}}';
  fake.next({ raw: { body } });
  const call = callTo("messages", bodyOf("messages"));
  await serve(call);
  expect(call.sink.text).toBe(body.replace("upstream-model", "public-model"));
});

test("a whole Chat answer gets annotations where it has none, and keeps those that it has", async () => {
  const choice = (message: string) => `{"index":0,"message":${message},"finish_reason":"stop"}`;
  const body = `{"model":"public-model","choices":[${choice('{"role":"assistant"}')},${choice('{"annotations":[1]}')},${choice("{}")}]}`;
  fake.next({ raw: { body } });
  const call = callTo("chat", bodyOf("chat"));
  await serve(call);
  expect(JSON.parse(call.sink.text)).toMatchObject({
    choices: [
      { message: { annotations: [] } },
      { message: { annotations: [1] } },
      { message: { annotations: [] } },
    ],
  });
});

describe("dialects.md §D3: a whole Responses answer that is none by its own account", () => {
  const usage = { input_tokens: 3, output_tokens: 4 };
  const output = [{ type: "message", content: [{ type: "output_text", text: "Half an ans" }] }];
  const error = { code: "server_error", message: "key sk-proj-abcdefgh at http://10.1.2.3/v1" };
  const relayed = (more: object) => {
    const body = JSON.stringify({ object: "response", model: "public-model", output, usage, ...more });
    fake.next({ raw: { body } });
    return { body, call: callTo("responses", bodyOf("responses")) };
  };

  test.each([
    ["failed", { status: "failed", error }],
    ["failed, with nothing in it", { output: [], error, status: "failed" }],
    ["failed, without saying why", { status: "failed", error: null }],
    ["with an error alone", { error }],
    ["cancelled", { status: "cancelled" }],
    ["queued", { status: "queued", output: [] }],
    ["in progress", { status: "in_progress" }],
  ])("%s: 502 in our own words, charged as it reports", async (_name, more) => {
    const { call } = relayed(more);
    const refused = await refusal(call);
    expect(refused).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
    expect(refused.message).not.toMatch(/sk-proj|10\.1\.2\.3/);
    expect(call.meter.settled).toMatchObject([
      { status: "error", estimated: false, tokens: { input: 3, output: 4 } },
    ]);
  });

  test("one that failed and reports nothing costs nothing", async () => {
    const { call } = relayed({ status: "failed", error, usage: null });
    expect(await refusal(call)).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
    expect([call.meter.settled, call.meter.released]).toEqual([[], 1]);
  });

  test("one that stands still and reports nothing is charged from an estimate", async () => {
    const { body, call } = relayed({ status: "in_progress", usage: null });
    await refusal(call);
    expect(call.meter.settled).toMatchObject([
      { status: "error", estimated: true, tokens: { output: Math.ceil(body.length / 4) } },
    ]);
  });

  test.each([{ status: "completed", error: null }, { status: "incomplete" }, { status: null }, {}])(
    "%j is one",
    async (more) => {
      const { body, call } = relayed(more);
      await serve(call);
      expect(call.sink.text).toBe(body);
      expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: false }]);
    },
  );
});

describe("a whole answer whose upstream counted no output is charged for what it wrote", () => {
  const written = "x".repeat(400);
  const bodies = {
    messages: { content: [{ type: "text", text: written }], usage: { input_tokens: 10 } },
    chat: {
      choices: [{ message: { role: "assistant", content: written } }],
      usage: { prompt_tokens: 10, completion_tokens: 0 },
    },
    responses: {
      output: [{ type: "message", content: [{ type: "output_text", text: written }] }],
      usage: { input_tokens: 10, output_tokens: -5 },
    },
  };
  test.each(dialects)("%s", async (dialect) => {
    fake.next({ raw: { body: JSON.stringify(bodies[dialect]) } });
    const call = callTo(dialect, bodyOf(dialect));
    await serve(call);
    expect(call.meter.settled).toMatchObject([
      { status: "ok", estimated: true, tokens: { input: 10, output: 100 } },
    ]);
  });

  test("and for nothing when it wrote nothing", async () => {
    const empty = { choices: [{ message: { content: "" } }], usage: { prompt_tokens: 10 } };
    fake.next({ raw: { body: JSON.stringify(empty) } });
    const call = callTo("chat", bodyOf("chat"));
    await serve(call);
    expect(call.meter.settled).toMatchObject([{ estimated: false, tokens: { input: 10, output: 0 } }]);
  });
});

test("rule 1.15: cached and written tokens are parts of the prompt", async () => {
  const usage = {
    prompt_tokens: 10,
    completion_tokens: 5,
    prompt_tokens_details: { cached_tokens: 1_000_000, cache_write_tokens: 7 },
  };
  fake.next({ raw: { body: JSON.stringify({ choices: [{ message: { content: "x" } }], usage }) } });
  const call = callTo("chat", bodyOf("chat"));
  await serve(call);
  expect(call.meter.settled).toMatchObject([
    { tokens: { input: 0, cacheRead: 10, cacheWrite5m: 0, output: 5 } },
  ]);
});

describe("rule 2.13: the numbers of a Responses stream that breaks off go on", () => {
  const event = (type: string, more: object) =>
    `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
  const delta = (number: number, more: object = {}) =>
    event("response.output_text.delta", { delta: "word ", ...more, sequence_number: number });
  const opening = [
    event("response.created", { response: { model: "public-model" }, sequence_number: 0 }),
    event("response.in_progress", { response: { model: "public-model" }, sequence_number: 1 }),
    event("response.output_item.added", { item: { type: "message" }, sequence_number: 2 }),
    event("response.content_part.added", { part: { type: "output_text" }, sequence_number: 3 }),
  ];
  const begun = [...opening, delta(4), delta(5), delta(6), delta(7)];
  const nameless = begun.map((piece) => piece.replace(/^event: .*\n/, ""));
  const nested = { obj: { sequence_number: 5000 } };
  const failed = { response: { error: { code: "server_error", message: "x" } }, sequence_number: 70 };

  /** Each piece arrives by itself; then the stream ends, or stands still. */
  async function numbered(pieces: readonly string[], end: "cut" | "idle"): Promise<unknown> {
    const server = createServer((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      void (async () => {
        for (const piece of pieces) {
          response.write(piece);
          await pause(2);
        }
        if (end === "cut") response.end();
      })();
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const { port } = server.address() as AddressInfo;
    const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 150, requestMs: 10_000 };
    const call = callTo("responses", bodyOf("responses", { stream: true }), {
      upstream: { url: `http://127.0.0.1:${port}` },
      route: { timeouts },
    });
    try {
      await serve(call);
    } finally {
      server.closeAllConnections();
      server.close();
    }
    const last = lastEvent(call.sink.text);
    expect(last).toMatchObject(inBand.responses);
    return (last as { sequence_number: unknown }).sequence_number;
  }

  const rows: [string, string[], number][] = [
    ["behind the last delta", begun, 8],
    ["behind a gap", [...begun, delta(41)], 42],
    ["behind a comment", [...begun, ": ping\n\n"], 8],
    ["behind many of them", [...begun, ...Array<string>(9).fill(": ping\n\n")], 8],
    ["behind a comment, before an error", [...begun, ": ping\n\n", event("error", { message: "x" })], 8],
    ["before a failure with a number", [...begun, ": ping\n\n", event("response.failed", failed)], 8],
    ["behind a keepalive", [...begun, event("keepalive", {})], 8],
    ["behind a keepalive with a number", [...begun, event("keepalive", { sequence_number: 8 })], 9],
    ["behind an unknown event", [...begun, event("response.new_thing", { a: [1] })], 8],
    ["behind broken data", [...begun, "data: {bad\n\n"], 8],
    ["behind a broken delta", [...begun, "event: response.output_text.delta\ndata: {bad\n\n"], 8],
    ["behind half an event", [...begun, delta(8).slice(0, -20)], 8],
    ["behind a nested number", [...begun, delta(8, nested), event("response.new_thing", nested)], 9],
    ["behind other events", [...opening, ": ping\n\n"], 4],
    ["in one piece", [begun.join("") + event("keepalive", {})], 8],
    ["without names", [...nameless, "data: {bad\n\n"], 8],
    ["without numbers", [event("response.created", { response: {} }), ": ping\n\n"], 0],
  ];
  test.each(rows)("%s", async (_name, pieces, next) => {
    const numbers = [numbered(pieces, "cut"), numbered(pieces, "idle")];
    expect(await Promise.all(numbers)).toEqual([next, next]);
  });
});

describe("streams that end oddly", () => {
  const chunk = (content: string, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: "c", model: "public-model", choices: [{ index: 0, delta: { content }, finish_reason: finish }] })}\n\n`;
  const served = async (body: string) => {
    fake.next({ raw: { body } });
    const options = { stream: true, stream_options: { include_usage: true } };
    const call = callTo("chat", bodyOf("chat", options));
    await serve(call);
    return { sent: call.sink.text, status: call.meter.settled[0]?.status };
  };
  const whole = chunk("a") + chunk("", "stop");

  test.each([
    ["without [DONE]", whole, whole],
    ["without the last blank line", `${whole}data: [DONE]`, `${whole}data: [DONE]\n\n`],
    ["within the event behind the end", `${whole}data: {"choices":[],"us`, whole],
    ["with an error behind the end", `${whole}data: {"error":{"message":"late"}}\n\n`, whole],
    [
      "with comments and CRLF",
      `: hi\r\n\r\n${whole.replaceAll("\n", "\r\n")}`,
      `: hi\r\n\r\n${whole.replaceAll("\n", "\r\n")}`,
    ],
    ["without finish_reason, with [DONE]", `${chunk("a")}data: [DONE]\n\n`, `${chunk("a")}data: [DONE]\n\n`],
  ])("rule 2.13: %s is complete", async (_name, body, sent) => {
    expect(await served(body)).toEqual({ sent, status: "ok" });
  });

  test("in the middle of an event: the half event is kept from the client's JSON parser", async () => {
    const { sent, status } = await served(`${chunk("a")}${chunk("b").slice(0, 60)}`);
    expect(sent.startsWith(chunk("a"))).toBe(true);
    expect(sent.slice(chunk("a").length)).toMatch(/^data: \{"error":/);
    expect(status).toBe("error");
  });
});

describe("the injected usage chunk", () => {
  test.each([
    [{}, false],
    [{ stream_options: null }, false],
    [{ stream_options: { include_usage: false } }, false],
    [{ stream_options: { include_obfuscation: false } }, false],
    [{ stream_options: { include_usage: true } }, true],
  ])("%j: the client sees it: %s", async (options, shown) => {
    fake.next(hello);
    const call = callTo("chat", bodyOf("chat", { stream: true, ...options }));
    await serve(call);
    expect(fake.requests[0]?.json()).toMatchObject({ stream_options: { include_usage: true } });
    expect(/"usage":\{/.test(call.sink.text)).toBe(shown);
    expect(call.sink.text).toMatch(/"finish_reason":"stop"[^]*\[DONE\]/);
    expect(call.meter.settled).toMatchObject([{ estimated: false, tokens: usage }]);
  });
});

const rejected = {
  messages: "messages.1.content.0: Invalid `signature` in `thinking` block",
  responses: "The encrypted content gAAA...ng== could not be verified.",
};
const withReasoning = {
  messages: {
    messages: [
      { role: "user", content: "Hi" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm", signature: "of-another-account" },
          { type: "text", text: "Hello" },
        ],
      },
      { role: "user", content: "And?" },
    ],
  },
  responses: {
    input: [
      { role: "user", content: "Hi" },
      { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "of-another-account" },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "Hello" }] },
      { role: "user", content: "And?" },
    ],
  },
};

describe.each(["messages", "responses"] as const)("rule 2.17: %s relayed", (dialect) => {
  test.each([false, true])("rejected reasoning is left out and asked again (stream: %s)", async (stream) => {
    fake.next({ error: { status: 400, message: rejected[dialect] } }, hello);
    const call = callTo(dialect, bodyOf(dialect, { ...withReasoning[dialect], stream }));
    await serve(call);
    expect(call.record.path).toBe("relay");
    expect(fake.requests).toHaveLength(2);
    expect(fake.requests[0]?.text).toContain("of-another-account");
    expect(fake.requests[1]?.text).not.toContain("of-another-account");
    expect(fake.requests[1]?.text).toContain("And?");
    expect(call.sink.text).toContain("Hello");
    expect(call.meter.settled).toMatchObject([{ status: "ok", iterations: 1 }]);
  });

  test("a request without reasoning is not asked again", async () => {
    fake.next({ error: { status: 400, message: rejected[dialect] } });
    const error = await refusal(callTo(dialect, bodyOf(dialect)));
    expect(error.kind.status).toBe(400);
    expect(fake.requests).toHaveLength(1);
  });
});

test("rule 2.3: a blind model's image is refused before anything is held, on relay too", async () => {
  const content = [{ type: "image_url", image_url: { url: "https://x.example/a.png" } }];
  const capabilities = { ...routeTo([]).capabilities, imageInput: false };
  const snapshot = snapshotOf([routeTo([upstreamOf(fake.url, "chat")], { capabilities })]);
  const call = callOf("chat", snapshot, { model: "public-model", messages: [{ role: "user", content }] });
  expect(await refusal(call)).toMatchObject({ code: "unsupported_content", param: "messages[0].content[0]" });
  expect(call.meter.opened).toEqual([]);
  expect(fake.requests).toHaveLength(0);
});

describe.each(["responses", "chat"] as const)(
  "a %s client of a model without encrypted reasoning",
  (client) => {
    test.each([
      "Encrypted content is not supported with this model.",
      "Invalid value: 'reasoning.encrypted_content'.",
      "include[0]: unknown value",
    ])("is asked again without it: %s", async (message) => {
      fake.next({ error: { status: 400, message } }, hello);
      const items = { keep: () => undefined, find: async () => new Map<string, Buffer>() };
      const snapshot = snapshotOf([routeTo([upstreamOf(fake.url, "responses")])]);
      const call = { ...callOf(client, snapshot, bodyOf(client)), items };
      await serve(call);
      expect(fake.requests.map(({ text }) => text.includes("encrypted_content"))).toEqual([true, false]);
      expect(call.sink.text).toContain("Hello");
    });
  },
);
