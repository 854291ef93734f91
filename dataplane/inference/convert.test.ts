/** The cells in which the client and the upstream speak different dialects, served against a real upstream. */
import { describe, expect, test } from "vitest";
import {
  callOf,
  declaredSearch,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
  type TestCall,
} from "../../test/fakes/inference.ts";
import {
  bodyOf,
  hello,
  sealedSignature,
  sealerOf,
  serveOneUpstream,
  usage,
} from "../../test/fakes/one-upstream.ts";
import { typedFrame } from "../../test/fakes/upstream/render.ts";
import { toolCall, type Faults, type Step } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import type { Route, Upstream } from "../config/schema.ts";
import { dialectPath, dialects, type Dialect } from "../dialects/dialect.ts";
import { SEALED_PREFIX } from "../dialects/reasoning.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const cells = dialects.flatMap((client) =>
  dialects.filter((upstream) => upstream !== client).map((upstream) => [client, upstream] as const),
);

interface Around {
  readonly route?: Partial<Route>;
  readonly upstreams?: Upstream[];
  readonly headers?: object;
}

function callTo(client: Dialect, upstream: Dialect, body: object, around: Around = {}): TestCall {
  const upstreams = around.upstreams ?? [upstreamOf(fake.url, upstream)];
  return callOf(client, snapshotOf([routeTo(upstreams, around.route)]), body, around.headers ?? {});
}

/** The end of a good stream, and that of a broken one. */
const terminal: Record<Dialect, string> = {
  messages: "event: message_stop",
  chat: "data: [DONE]",
  responses: "event: response.completed",
};
const inBand: Record<Dialect, RegExp> = {
  messages: /^event: error\ndata: \{"type":"error".*"request_id":"req_test"/,
  chat: /^data: \{"error":\{/,
  responses: /^event: error\ndata: \{"type":"error","sequence_number":\d+/,
};
const eventsOf = (call: TestCall): string[] => call.sink.text.trimEnd().split("\n\n");

describe.each(cells)("a %s client of a %s upstream", (client, upstream) => {
  const streaming = (faults?: Faults, around?: Around): TestCall => {
    fake.next(faults === undefined ? hello : withFaults(hello, faults));
    return callTo(client, upstream, bodyOf(client, { stream: true }), around);
  };

  test("gets a whole answer in its own dialect, charged as the upstream reports", async () => {
    fake.next(hello);
    const call = callTo(client, upstream, bodyOf(client));
    await serve(call);
    expect(call.sink.status).toBe(200);
    expect(JSON.parse(call.sink.text)).toMatchObject({ model: "public-model" });
    expect(call.sink.text).toContain("Hello there, dear reader.");
    expect(call.sink.ended).toBe(true);
    expect(call.meter.settled).toMatchObject([
      { status: "ok", estimated: false, upstream: "primary", iterations: 1, tokens: usage },
    ]);
    expect(fake.requests[0]?.path).toBe(dialectPath[upstream]);
    expect(fake.requests[0]?.json()).toMatchObject({ model: "upstream-model" });
    expect(call.summary.servingPath).toBe("convert");
    expect(call.sink.headers).not.toHaveProperty("x-gapura-dropped");
  });

  test("gets a stream in its own dialect, charged as the upstream reports", async () => {
    const call = streaming();
    await serve(call);
    expect(call.sink.headers).toMatchObject({ "content-type": "text/event-stream; charset=utf-8" });
    expect(call.sink.text).toContain(terminal[client]);
    expect(call.sink.text).not.toContain("upstream-model");
    expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: false, tokens: usage }]);
  });

  test("the same bytes give the same stream, however they are cut", async () => {
    const seen = new Set<string>();
    for (const chunkBytes of [1, 13, 100_000]) {
      const call = streaming({ chunkBytes });
      await serve(call);
      seen.add(
        call.sink.text
          .replaceAll(/(msg|chatcmpl|resp|rs|fc|call|toolu)[_-][A-Za-z0-9]{24}/g, "$1_x")
          .replaceAll(/"(created|created_at|completed_at)":\d+/g, '"$1":0'),
      );
    }
    expect(seen.size).toBe(1);
  });

  test("rule 1.9: the end of a stream leaves only when its charge is durable", async () => {
    const call = streaming();
    let before = "";
    call.meter.onSettle = async () => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      before = call.sink.text;
    };
    await serve(call);
    expect(before).toContain("Hello");
    expect(before).not.toContain(terminal[client]);
    if (client === "chat") expect(before).not.toContain('"finish_reason":"stop"');
    expect(call.sink.text).toContain(terminal[client]);
  });

  test("rule 2.13: a stream that is cut ends in exactly one in-band error and is charged from an estimate", async () => {
    const call = streaming({ cutAtEvent: 5 });
    await serve(call);
    expect(eventsOf(call).at(-1)).toMatch(inBand[client]);
    expect(call.sink.text).not.toContain(terminal[client]);
    expect(call.meter.settled).toMatchObject([{ status: "error", estimated: true }]);
    expect(call.sink.ended).toBe(true);
  });

  test("an error inside a stream ends it in the client's dialect", async () => {
    const call = streaming({ errorAtEvent: { event: 5, type: "overloaded_error", message: "sk-secret" } });
    await serve(call);
    expect(eventsOf(call).at(-1)).toMatch(inBand[client]);
    expect(call.sink.text).not.toContain("sk-secret");
  });

  test("rule 1.6: a stream that dies before its first event is a real HTTP status", async () => {
    const call = streaming({ cutAtEvent: 0 });
    expect((await refusal(call)).kind.status).toBe(502);
    expect(call.meter).toMatchObject({ settled: [], released: 1 });
  });

  test("a stream that stands still ends in the in-band error", async () => {
    const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 60, requestMs: 10_000 };
    const call = streaming({ stallAtEvent: 5 }, { route: { timeouts } });
    await serve(call);
    expect(eventsOf(call).at(-1)).toMatch(inBand[client]);
  });

  test("rule 1.6: a corrupt whole answer is 502 and charged from an estimate, an empty one is free", async () => {
    fake.next(withFaults(hello, { malformed: true }));
    const corrupt = callTo(client, upstream, bodyOf(client));
    expect(await refusal(corrupt)).toMatchObject({ code: "upstream_error" });
    expect(corrupt.meter.settled).toMatchObject([{ status: "error", estimated: true }]);
    fake.next(withFaults(hello, { empty: true }));
    const empty = callTo(client, upstream, bodyOf(client));
    expect(await refusal(empty)).toMatchObject({ code: "upstream_error" });
    expect(empty.meter).toMatchObject({ settled: [], released: 1 });
  });

  test("an answer without a usage report is charged from an estimate", async () => {
    fake.next(withFaults(hello, { noUsage: true }));
    const call = callTo(client, upstream, bodyOf(client));
    await serve(call);
    expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: true }]);
    expect(call.meter.settled[0]?.tokens.output).toBeGreaterThan(0);
    const streamed = streaming({ noUsage: true });
    await serve(streamed);
    expect(streamed.meter.settled).toMatchObject([{ status: "ok", estimated: true }]);
    expect(streamed.meter.settled[0]?.tokens.output).toBeGreaterThan(0);
  });

  test("two functions of one name are refused: nobody could tell whose a call is", async () => {
    const parameters = { type: "object" };
    const { tool, param } = {
      messages: { tool: { name: "f", input_schema: parameters }, param: "tools.1.name" },
      chat: {
        tool: { type: "function", function: { name: "f", parameters } },
        param: "tools[1].function.name",
      },
      responses: { tool: { type: "function", name: "f", parameters }, param: "tools[1].name" },
    }[client];
    const error = await refusal(callTo(client, upstream, bodyOf(client, { tools: [tool, tool] })));
    expect(error).toMatchObject({ kind: { status: 400 }, param });
    expect(fake.requests).toEqual([]);
  });

  test("bad input is refused before anything is held", async () => {
    const messages = [{ role: "user", content: [{ type: "nonsense" }] }];
    const field = client === "responses" ? { input: messages } : { messages };
    const call = callTo(client, upstream, bodyOf(client, field));
    const error = await refusal(call);
    expect(error.kind.status).toBe(400);
    expect(error.param).toMatch(/content/);
    expect(call.meter.settled).toEqual([]);
    expect(fake.requests).toHaveLength(0);
  });
});

describe.each(dialects)("half a report of a %s upstream: the other half is counted here", (upstream) => {
  const written = "x".repeat(400);
  const names: Record<Dialect, { input: string; output: string }> = {
    messages: { input: "input_tokens", output: "output_tokens" },
    chat: { input: "prompt_tokens", output: "completion_tokens" },
    responses: { input: "input_tokens", output: "output_tokens" },
  };
  const whole: Record<Dialect, object> = {
    messages: { content: [{ type: "text", text: written }] },
    chat: { choices: [{ message: { role: "assistant", content: written } }] },
    responses: { output: [{ type: "message", content: [{ type: "output_text", text: written }] }] },
  };
  const events = (report: object): Record<Dialect, object[]> => ({
    messages: [
      { type: "message_start", message: { id: "msg_1" } },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
      { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: written } },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: report },
      { type: "message_stop" },
    ],
    chat: [
      { choices: [{ index: 0, delta: { content: written } }] },
      { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
      { choices: [], usage: report },
    ],
    responses: [
      { type: "response.output_text.delta", output_index: 0, content_index: 0, delta: written },
      { type: "response.completed", response: { status: "completed", usage: report } },
    ],
  });
  const answer = (report: object, stream: boolean): Step => {
    if (!stream) return { raw: { body: JSON.stringify({ ...whole[upstream], usage: report }) } };
    const body = events(report)[upstream].map((event) => `data: ${JSON.stringify(event)}\n\n`);
    return { raw: { body: body.join(""), contentType: "text/event-stream" } };
  };

  const ways = dialects.flatMap((client) => [false, true].map((stream) => [client, stream] as const));
  test.each(ways)("%s client, streamed: %s", async (client, stream) => {
    for (const [half, other] of [
      ["input", "output"],
      ["output", "input"],
    ] as const) {
      fake.next(answer({ [names[upstream][half]]: 7 }, stream));
      const call = callTo(client, upstream, bodyOf(client, { stream, user: "y".repeat(400) }));
      await serve(call);
      expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: true, tokens: { [half]: 7 } }]);
      // About four characters of the request, and of the answer, are one token.
      const estimate = call.meter.settled[0]?.tokens[other];
      expect(estimate).toBeGreaterThanOrEqual(100);
      expect(estimate).toBeLessThan(200);
    }
  });
});

describe("a stream that comes to nothing is charged as its upstream reports (design.md §5)", () => {
  const reported = { input_tokens: 30, input_tokens_details: { cached_tokens: 10 }, output_tokens: 4 };
  const call = { type: "function_call", call_id: "call_1", name: "find", arguments: "" };
  const args = { output_index: 0, delta: '{"query": "ga' };
  const texts = [
    typedFrame("response.created", { response: { status: "in_progress", usage: null } }),
    typedFrame("response.output_text.delta", {
      output_index: 0,
      content_index: 0,
      delta: "Half an answer of words",
    }),
  ];
  const calls = [
    typedFrame("response.output_item.added", { output_index: 0, item: call }),
    typedFrame("response.function_call_arguments.delta", args),
  ];
  const chunk = (more: object): string => `data: ${JSON.stringify(more)}\n\n`;
  const half = [
    { index: 0, id: "call_1", type: "function", function: { name: "find", arguments: args.delta } },
  ];
  const details = { prompt_tokens_details: { cached_tokens: 10 } };

  test.each([
    [
      "fails",
      "responses",
      [
        ...texts,
        typedFrame("response.failed", {
          response: { status: "failed", error: { code: "server_error" }, usage: reported },
        }),
      ],
    ],
    [
      "has half of a tool's arguments",
      "responses",
      [...calls, typedFrame("response.completed", { response: { status: "completed", usage: reported } })],
    ],
    [
      "has half of a tool's arguments",
      "chat",
      [
        chunk({ choices: [{ index: 0, delta: { tool_calls: half } }] }),
        chunk({ choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] }),
        chunk({ choices: [], usage: { prompt_tokens: 30, completion_tokens: 4, ...details } }),
        "data: [DONE]\n\n",
      ],
    ],
  ] as const)("one that %s (%s)", async (_what, upstream, events) => {
    fake.next({ raw: { body: events.join(""), contentType: "text/event-stream" } });
    const served = callTo("messages", upstream, bodyOf("messages", { stream: true }));
    await serve(served);
    expect(eventsOf(served).at(-1)).toMatch(inBand.messages);
    expect(served.meter.settled).toMatchObject([
      { status: "error", estimated: false, tokens: { input: 20, cacheRead: 10, output: 4 } },
    ]);
  });
});

describe("dialects.md §D2: thinking that is to be omitted is an empty text with its signature", () => {
  const of: Step = {
    answer: {
      parts: [
        { type: "thinking", text: "How hidden. ", signature: "sig" },
        { type: "text", text: "Hello" },
      ],
    },
  };

  test.each(["chat", "responses"] as const)("toward %s", async (upstream) => {
    const thinking = (display: string) => ({ thinking: { type: "adaptive", display } });
    fake.next(of, of, of, of);
    const whole = callTo("messages", upstream, bodyOf("messages", thinking("omitted")));
    await serve(whole);
    const signature = expect.stringMatching(/./) as string;
    expect(JSON.parse(whole.sink.text)).toMatchObject({
      content: [
        { type: "thinking", thinking: "", signature },
        { type: "text", text: "Hello" },
      ],
    });
    const streamed = callTo(
      "messages",
      upstream,
      bodyOf("messages", { ...thinking("omitted"), stream: true }),
    );
    await serve(streamed);
    expect(streamed.sink.text).toMatch(/"signature_delta","signature":"./);
    expect(streamed.sink.text).not.toMatch(/hidden|thinking_delta/);

    for (const stream of [false, true]) {
      const shown = callTo("messages", upstream, bodyOf("messages", { ...thinking("summarized"), stream }));
      await serve(shown);
      expect(shown.sink.text).toContain("hidden");
    }
  });
});

describe("a tool's input keeps integers beyond 2^53", () => {
  const args = '{"id": 9007199254740993, "in": {"list": [-12345678901234567890, 1]}}';
  const exact = args.replaceAll(" ", "");
  /** Bodies whose `input` is an object are written as text: no JavaScript number could hold these digits. */
  const block = `{"type":"tool_use","id":"call_1","name":"find","input":${args}}`;
  const called = { name: "find", arguments: args };
  const histories: Record<Dialect, string> = {
    messages: `{"model":"public-model","max_tokens":9,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[${block}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"r"}]}]}`,
    chat: JSON.stringify({
      model: "public-model",
      messages: [
        { role: "user", content: "x" },
        { role: "assistant", tool_calls: [{ id: "call_1", type: "function", function: called }] },
        { role: "tool", tool_call_id: "call_1", content: "r" },
      ],
    }),
    responses: JSON.stringify({
      model: "public-model",
      input: [
        { role: "user", content: "x" },
        { type: "function_call", call_id: "call_1", ...called },
        { type: "function_call_output", call_id: "call_1", output: "r" },
      ],
    }),
  };
  const answers: Record<Dialect, string> = {
    messages: `{"type":"message","content":[{"type":"text","text":"So:"},${block}],"stop_reason":"tool_use"}`,
    chat: JSON.stringify({ choices: [{ message: { tool_calls: [{ id: "call_1", function: called }] } }] }),
    responses: JSON.stringify({ output: [{ type: "function_call", call_id: "call_1", ...called }] }),
  };
  const plain = (json: string): string => json.replaceAll("\\", "").replaceAll(" ", "");

  test.each(dialects.flatMap((client) => dialects.map((upstream) => [client, upstream] as const)))(
    "from %s to %s and back",
    async (client, upstream) => {
      fake.next({ raw: { body: answers[upstream] } }, toolCall("find", args, "call_1"));
      const whole = { ...callTo(client, upstream, {}), body: Buffer.from(histories[client]) };
      await serve(whole);
      expect(plain(fake.requests[0]?.text ?? "")).toContain(exact);
      expect(plain(whole.sink.text)).toContain(exact);
      const streamed = callTo(client, upstream, bodyOf(client, { stream: true }));
      await serve(streamed);
      const pieces = streamed.sink.text.matchAll(/"(?:partial_json|arguments|delta)":"((?:[^"\\]|\\.)*)"/g);
      expect(plain(Array.from(pieces, ([, piece]) => piece).join(""))).toContain(exact);
    },
  );
});

describe("a schema keeps numbers beyond 2^53 and beyond every double", () => {
  const schema = `{"type":"object","properties":{"id":{"type":"integer","minimum":1.0,"maximum":9223372036854775807,"enum":[-12345678901234567890,1e400]}}}`;
  const exact = '"maximum":9223372036854775807,"enum":[-12345678901234567890,1e400]';
  const requests: Record<Dialect, string> = {
    messages: `{"model":"public-model","max_tokens":9,"messages":[{"role":"user","content":"x"},{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"more","input_schema":${schema}}}}]},{"role":"user","content":"y"}],"tools":[{"name":"find","input_schema":${schema}}],"output_config":{"format":{"type":"json_schema","schema":${schema}}}}`,
    chat: `{"model":"public-model","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"find","parameters":${schema}}}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":${schema}}}}`,
    responses: `{"model":"public-model","input":[{"type":"message","role":"user","content":"x"},{"type":"additional_tools","tools":[{"type":"function","name":"more","parameters":${schema}}]}],"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"find","parameters":${schema}}]}],"text":{"format":{"type":"json_schema","name":"s","schema":${schema}}}}`,
  };

  test.each(cells)("from %s to %s", async (client, upstream) => {
    fake.next(hello);
    const call = { ...callTo(client, upstream, {}), body: Buffer.from(requests[client]) };
    await serve(call);
    expect(call.sink.status).toBe(200);
    expect(fake.requests[0]?.text.split(exact)).toHaveLength(client === "chat" ? 3 : 4);
  });
});

test.each<[string, string, object]>([
  ["a call by the user", "user", { type: "tool_use", id: "t", name: "f", input: {} }],
  ["a model's result", "assistant", { type: "tool_result", tool_use_id: "t", content: "x" }],
  ["a model's result in parts", "assistant", { type: "tool_result", tool_use_id: "t", content: [] }],
])("rule 1.4: %s is refused with its place", async (_, role, block) => {
  const asked = { role: "user", content: "x" };
  const messages = [asked, { role, content: [{ type: "text", text: "y" }, block] }, asked];
  for (const upstream of ["chat", "responses"] as const)
    expect(await refusal(callTo("messages", upstream, bodyOf("messages", { messages })))).toMatchObject({
      code: "unsupported_content",
      param: "messages.1.content.1",
    });
});

test("rule 2.2: drops are named in the header, and refused under strict before any upstream call", async () => {
  fake.next(hello, hello);
  const body = bodyOf("messages", { top_k: 3, stream: true });
  const call = callTo("messages", "chat", body);
  await serve(call);
  expect(call.sink.headers).toMatchObject({ "x-gapura-dropped": "top_k" });
  for (const word of ["true", "True", "TRUE"]) {
    const strict = callTo("messages", "chat", body, { headers: { "x-gapura-strict": word } });
    expect(await refusal(strict)).toMatchObject({ code: "unsupported_parameter", param: "top_k" });
    expect(strict.meter).toMatchObject({ settled: [], released: 1 });
  }
  expect(fake.requests).toHaveLength(1);
});

test.each([false, true])("failover crosses dialects before the first byte (stream: %s)", async (stream) => {
  const upstreams = dialects.map((dialect, priority) =>
    upstreamOf(fake.url, dialect, { name: dialect, priority }),
  );
  fake.next({ error: { status: 500 } }, { error: { status: 503 } }, hello);
  const call = callTo("messages", "messages", bodyOf("messages", { top_k: 3, stream }), {
    upstreams,
    route: { retries: { attempts: 3, retryOn: ["server_error", "connect"] } },
  });
  await serve(call);
  expect(fake.requests.map(({ path }) => path)).toEqual(dialects.map((dialect) => dialectPath[dialect]));
  expect(call.sink.text).toContain("Hello");
  // The last upstream's dialect has no place for this field, the first one's has.
  expect(call.sink.headers).toMatchObject({ "x-gapura-dropped": "top_k" });
  expect(call.meter.settled).toMatchObject([{ status: "ok", upstream: "responses", tokens: usage }]);
  expect(call.meter.released).toBe(0);
});

test("dialects.md §D2: a rejected signature is sent once more without the reasoning", async () => {
  const messages = [
    { role: "user", content: "Hi" },
    {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "hm", signature: sealedSignature("EqQB") },
        {
          type: "thinking",
          thinking: "hm",
          signature: SEALED_PREFIX + sealerOf("org_a").seal('{"from":"chat"}'),
        },
        { type: "text", text: "Hello" },
      ],
    },
    { role: "user", content: "And?" },
  ];
  fake.next(
    { error: { status: 400, message: "messages.1.content.0: Invalid `signature` in `thinking` block" } },
    hello,
  );
  const call = callTo("messages", "messages", bodyOf("messages", { messages }));
  await serve(call);
  expect(call.summary.servingPath).toBe("relay");
  expect(JSON.stringify(fake.requests[0]?.json())).toContain("EqQB");
  expect(JSON.stringify(fake.requests[0]?.json())).not.toContain(SEALED_PREFIX);
  expect(JSON.stringify(fake.requests[1]?.json())).not.toContain("thinking");
  expect(call.meter.settled).toHaveLength(1);
});

describe("an upstream's 400 names no path of its own dialect", () => {
  const words = "messages.1.content.0.image.source.base64: image exceeds 5 MB maximum";
  const refused: Step = { error: { status: 400, message: words } };

  test.each(["chat", "responses"] as const)("to a %s client", async (client) => {
    fake.next(refused);
    const error = await refusal(callTo(client, "messages", bodyOf(client)));
    expect(error).toMatchObject({ code: "invalid_request", message: "image exceeds 5 MB maximum" });
    expect(error.param).toBeUndefined();
  });

  test("inside a stream either", async () => {
    const fault = { event: 5, type: "invalid_request_error", message: "Invalid value: 'input[0].content'." };
    fake.next(withFaults(hello, { errorAtEvent: fault }));
    const call = callTo("messages", "responses", bodyOf("messages", { stream: true }));
    await serve(call);
    expect(eventsOf(call).at(-1)).toContain("Invalid value: a field.");
  });

  test("but keeps those that the client can find", async () => {
    fake.next(refused);
    const snapshot = snapshotOf([routeTo([upstreamOf(fake.url, "messages")])]);
    expect((await refusal(callOf("messages", snapshot, bodyOf("messages")))).message).toBe(words);
  });
});

describe("dialects.md §D1: an upstream that takes no system turn in the middle", () => {
  const messages = [
    { role: "system", content: "Be brief." },
    { role: "user", content: "Hi" },
    { role: "system", content: "Be kind." },
    { role: "user", content: "And?" },
  ];
  test.each([
    'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter.',
    "messages.1.role: Input should be 'user' or 'assistant'",
    "role 'system' is not supported on this model",
    "messages.2: role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool result; the directive-only form (content: [] with output_config) is accepted at any position",
    "messages.2: role 'system' must precede an 'assistant' message or end the array; the directive-only form (content: [] with output_config) is accepted at any position",
  ])("gets it among the leading ones: %s", async (message) => {
    fake.next({ error: { status: 400, message } }, hello);
    const call = callTo("chat", "messages", bodyOf("chat", { messages }));
    await serve(call);
    expect(fake.requests[0]?.json()).toMatchObject({ messages: [{}, { role: "system" }, {}] });
    expect(fake.requests[1]?.json()).toMatchObject({
      system: "Be brief.\nBe kind.",
      messages: [
        { role: "user", content: "Hi" },
        { role: "user", content: "And?" },
      ],
    });
    expect(call.meter.settled).toHaveLength(1);
  });

  test("what it says beside its text is lost then, and named", async () => {
    const refused: Step = { error: { status: 400, message: 'Unexpected role "system"' } };
    const turn = { role: "system", content: "Be kind.", clear_at: "next_user_message" };
    const effort = { role: "system", output_config: { effort: "low" } };
    const asked = {
      messages: [messages[1], turn, effort, { ...turn, clear_at: "never" }, messages[3]],
      ...declaredSearch.messages,
    };
    fake.next(refused, hello);
    const route = routeTo([upstreamOf(fake.url, "messages")], { toolPolicy: "test/default" });
    const snapshot = snapshotOf([route], ["*"], {}, { "test/default": toolPolicy });
    const call = callOf("messages", snapshot, bodyOf("messages", asked));
    await serve(call);
    expect(JSON.stringify(fake.requests[0]?.json())).toContain("clear_at");
    expect(JSON.stringify(fake.requests[1]?.json())).not.toContain("clear_at");
    expect(call.sink.headers).toMatchObject({
      "x-gapura-dropped": "messages.clear_at, messages.output_config",
    });
  });

  test("is asked once where there is none to move", async () => {
    fake.next({ error: { status: 400, message: 'Unexpected role "system"' } });
    await refusal(callTo("chat", "messages", bodyOf("chat")));
    expect(fake.requests).toHaveLength(1);
  });

  test.each(["chat", "responses"] as const)(
    "a call that is demanded is named where the turns took all tools away: %s",
    async (upstream) => {
      const refused: Step = { error: { status: 400, message: "System message must be at the beginning." } };
      const removal = { type: "tool_removal", tool: { type: "tool_reference", name: "clock" } };
      const asked = {
        tools: [{ name: "clock", input_schema: { type: "object" } }],
        tool_choice: { type: "any" },
        messages: [messages[1], { role: "system", content: [removal] }, messages[3]],
      };
      fake.next(refused, hello, refused, hello);
      const call = callTo("messages", upstream, bodyOf("messages", asked));
      await serve(call);
      expect(fake.requests[1]?.json()).toMatchObject({ tools: [{}], tool_choice: "none" });
      expect(call.sink.headers).toMatchObject({ "x-gapura-dropped": "tool_choice" });
      const strict = { headers: { "x-gapura-strict": "true" } };
      expect(await refusal(callTo("messages", upstream, bodyOf("messages", asked), strict))).toMatchObject({
        code: "unsupported_parameter",
        param: "tool_choice",
      });
    },
  );

  test("keeps the blocks of a Messages client's own instructions", async () => {
    fake.next({ error: { status: 400, message: "System message must be at the beginning." } }, hello);
    const system = [{ type: "text", text: "Be brief." }];
    await serve(callTo("messages", "chat", bodyOf("messages", { system, messages: messages.slice(1) })));
    expect(fake.requests[1]?.json()).toMatchObject({
      messages: [{ role: "system", content: "Be brief.\nBe kind." }, { role: "user" }, { role: "user" }],
    });
  });
});

test("rule 2.11: only a Messages upstream gets the version headers, whoever the client is", async () => {
  fake.next(hello, hello);
  await serve(callTo("chat", "messages", bodyOf("chat")));
  await serve(
    callTo("messages", "chat", bodyOf("messages"), {
      headers: { "anthropic-version": "2026-10-21", "anthropic-beta": "x" },
    }),
  );
  expect(fake.requests[0]?.headers).toMatchObject({ "anthropic-version": "2023-06-01" });
  expect(fake.requests[1]?.headers).not.toHaveProperty("anthropic-version");
  expect(fake.requests[1]?.headers).not.toHaveProperty("anthropic-beta");
});

test("a Chat upstream gets an id of its length for a tool call, its result and what goes with that", async () => {
  fake.next(hello);
  const id = "toolu_".padEnd(64, "x");
  const image = { type: "image", source: { type: "url", url: "https://a.example/b.png" } };
  const messages = [
    { role: "user", content: "a" },
    { role: "assistant", content: [{ type: "tool_use", id, name: "look", input: {} }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: id, content: [image] }] },
  ];
  await serve(callTo("messages", "chat", bodyOf("messages", { messages })));
  const written = fake.requests[0]?.text ?? "";
  const [alias = ""] = /call_[0-9a-f]{32}/.exec(written) ?? [];
  expect(written.split(alias)).toHaveLength(4);
  expect(written).not.toContain(id);
  expect(fake.requests[0]?.json()).toMatchObject({
    messages: [{}, { tool_calls: [{ id: alias }] }, { role: "tool", tool_call_id: alias }, { role: "user" }],
  });
});

describe("an assistant's turn that ends in its reasoning, which Messages refuses, goes without", () => {
  const thinking = { type: "thinking", thinking: "hm", signature: sealedSignature("EqQB") };
  const redacted = { type: "redacted_thinking", data: sealedSignature("EqQC") };
  const said = (text: string) => ({ type: "text", text });
  const asked = { role: "user", content: "a" };
  const answer = (content: object[]) => ({ role: "assistant", content });

  test.each<[string, object[], object[]]>([
    ["nothing else", [thinking], [asked, asked]],
    ["blanks alone", [thinking, said("\n\n")], [asked, asked]],
    ["words before it", [said("b"), thinking, redacted], [asked, answer([said("b")]), asked]],
  ])("beside a server tool: %s", async (_, content, messages) => {
    await expectSent([asked, answer(content), asked], messages);
  });

  test("of a turn that goes on in the next message it is not the end", async () => {
    const opened = { ...thinking, signature: "EqQB" };
    await expectSent(
      [asked, answer([thinking]), answer([said("b"), thinking]), answer([redacted]), asked],
      [asked, answer([opened]), answer([said("b")]), asked],
    );
  });

  async function expectSent(given: object[], messages: object[]): Promise<void> {
    fake.next(hello);
    const body = bodyOf("messages", { messages: given, ...declaredSearch.messages });
    const route = routeTo([upstreamOf(fake.url, "messages")], { toolPolicy: "test/default" });
    await serve(callOf("messages", snapshotOf([route], ["*"], {}, { "test/default": toolPolicy }), body));
    expect(fake.requests[0]?.json()).toMatchObject({ messages });
  }

  test("converted, also as the last turn", async () => {
    fake.next(hello);
    const reasoning = {
      type: "reasoning",
      id: "rs_1",
      summary: [{ type: "summary_text", text: "hm" }],
      encrypted_content: sealedSignature("EqQB"),
    };
    const blank = { role: "assistant", content: [{ type: "output_text", text: " " }] };
    const words = { role: "assistant", content: [{ type: "output_text", text: "b" }] };
    await serve(
      callTo("responses", "messages", bodyOf("responses", { input: [asked, words, reasoning, blank] })),
    );
    expect(fake.requests[0]?.json()).toMatchObject({ messages: [asked, answer([said("b")])] });
  });
});

describe("a conversation whose last turn has nothing that the upstream takes", () => {
  const turn = (role: string, content: unknown) => ({ role, content });
  const [asked, answered, empty] = [turn("user", "a"), turn("assistant", "b"), turn("user", "")];
  const answeredBlocks = turn("assistant", [{ type: "text", text: "b" }]);
  const blank = turn("user", [{ type: "input_text", text: "" }]);
  const reasoning = { type: "reasoning", id: "rs_1", summary: [] };
  const call = { type: "function", id: "call_1", function: { name: "look", arguments: "{}" } };
  const result = { role: "tool", tool_call_id: "call_1", content: "seen" };
  test.each<[string, Dialect, Dialect, object, string]>([
    [
      "an empty turn behind an answer",
      "chat",
      "messages",
      { messages: [asked, answered, empty] },
      "messages",
    ],
    ["an empty turn alone", "chat", "messages", { messages: [empty] }, "messages"],
    ["an empty turn behind an answer", "responses", "messages", { input: [asked, answered, empty] }, "input"],
    ["an empty text", "responses", "messages", { input: [blank] }, "input"],
    ["blanks alone", "chat", "messages", { messages: [asked, answered, turn("user", " \n")] }, "messages"],
    [
      "an empty turn where JSON is asked for",
      "chat",
      "messages",
      { messages: [empty], response_format: { type: "json_object" } },
      "messages",
    ],
    ["no content", "responses", "chat", { input: [turn("user", [])] }, "input"],
    ["no content", "messages", "chat", { messages: [turn("user", [])] }, "messages"],
    ["no content", "messages", "responses", { messages: [turn("user", [])] }, "messages"],
    ["reasoning that nobody kept", "responses", "messages", { input: [reasoning] }, "input"],
    ["reasoning that nobody kept", "responses", "responses", { input: [reasoning] }, "input"],
  ])("%s is refused before the upstream is asked: %s to %s", async (_, client, upstream, body, param) => {
    const error = await refusal(callTo(client, upstream, bodyOf(client, body)));
    expect([error.kind.status, error.param]).toEqual([400, param]);
    expect(fake.requests).toEqual([]);
  });

  test.each<[string, Dialect, Dialect, object, object]>([
    [
      "an empty turn before others goes",
      "chat",
      "messages",
      { messages: [empty, asked, answered, empty, asked] },
      { messages: [asked, answeredBlocks, asked] },
    ],
    [
      "an empty turn behind another of the user goes",
      "chat",
      "messages",
      { messages: [asked, empty] },
      { messages: [asked] },
    ],
    [
      "blanks before a call go",
      "chat",
      "messages",
      { messages: [asked, { ...turn("assistant", "\n\n"), tool_calls: [call] }, result] },
      {
        messages: [asked, turn("assistant", [{ type: "tool_use" }]), turn("user", [{ type: "tool_result" }])],
      },
    ],
    [
      "blanks alone of an assistant go",
      "responses",
      "messages",
      { input: [asked, turn("assistant", " "), asked] },
      { messages: [asked, asked] },
    ],
    [
      "blanks at the end of a turn that is to go on go",
      "chat",
      "messages",
      { messages: [asked, turn("assistant", "b \n")] },
      { messages: [asked, answeredBlocks] },
    ],
    [
      "blanks at the end of a turn that is to go on go",
      "responses",
      "messages",
      {
        input: [
          asked,
          turn(
            "assistant",
            ["b ", " "].map((text) => ({ type: "output_text", text })),
          ),
        ],
      },
      { messages: [asked, answeredBlocks] },
    ],
    [
      "blanks at the end of a turn before others stay",
      "chat",
      "messages",
      { messages: [asked, turn("assistant", "b "), asked] },
      { messages: [asked, turn("assistant", [{ type: "text", text: "b " }]), asked] },
    ],
    [
      "blanks between texts stay",
      "chat",
      "messages",
      {
        messages: [
          turn(
            "user",
            ["a", " ", "", "b"].map((text) => ({ type: "text", text })),
          ),
        ],
      },
      {
        messages: [
          turn(
            "user",
            ["a", " ", "b"].map((text) => ({ type: "text", text })),
          ),
        ],
      },
    ],
    [
      "a Chat client's own answer stays the last turn",
      "chat",
      "messages",
      { messages: [asked, answered] },
      { messages: [asked, answeredBlocks] },
    ],
    [
      "where an upstream takes it, it stays",
      "chat",
      "responses",
      { messages: [asked, answered, empty] },
      { input: expect.toSatisfy((input: unknown[]) => input.length === 3) },
    ],
    [
      "instructions alone are to be answered",
      "responses",
      "responses",
      { input: [reasoning], instructions: "Say hi." },
      { input: [], instructions: "Say hi." },
    ],
  ])("%s: %s to %s", async (_, client, upstream, body, sent) => {
    fake.next(hello);
    await serve(callTo(client, upstream, bodyOf(client, body)));
    expect(fake.requests[0]?.json()).toMatchObject(sent);
  });

  test.each(["", " \n"])("instructions of %j are none to a Messages upstream", async (system) => {
    fake.next(hello);
    await serve(callTo("chat", "messages", bodyOf("chat", { messages: [turn("system", system), asked] })));
    expect(fake.requests[0]?.json()).not.toHaveProperty("system");
  });
});
