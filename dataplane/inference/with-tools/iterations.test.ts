import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { callOf, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../../../test/fakes/inference.ts";
import { sealedSignature, serveOneUpstream } from "../../../test/fakes/one-upstream.ts";
import { typedFrame } from "../../../test/fakes/upstream/render.ts";
import { text, type Step } from "../../../test/fakes/upstream/script.ts";
import type { SseEvent } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { codecs } from "../../dialects/registry.ts";
import type { SearchHit } from "../../tools/outcomes.ts";

/** Hits of the searches of a test. */
let found: readonly SearchHit[] = [];
/** Log lines of a test's request. */
let logged: object[] = [];
beforeEach(() => {
  found = [];
  logged = [];
});
afterEach(() => {
  vi.restoreAllMocks();
});

const { fake, serve } = await serveOneUpstream(async () => ({
  kind: "hits",
  hits: found,
  posts: 0,
  profiles: 0,
}));

const refused: Step = {
  error: { status: 400, message: "messages.1.content.0: Invalid `signature` in `thinking` block" },
};
const searching = (signature: string): Step => ({
  answer: {
    parts: [
      { type: "thinking", text: "Hm.", signature },
      { type: "tool", name: "web_search", input: { query: "gates" } },
    ],
  },
});
const earlier = [
  { role: "user", content: "Hi" },
  {
    role: "assistant",
    content: [
      { type: "thinking", thinking: "Hm.", signature: sealedSignature("of-another-account") },
      { type: "text", text: "Hello" },
    ],
  },
  { role: "user", content: "And what is new?" },
];

async function serveTools(messages: readonly object[], stream: boolean, upstream: Dialect = "messages") {
  const route = routeTo([upstreamOf(fake.url, upstream)], { toolPolicy: "test/default" });
  const call = callOf("messages", snapshotOf([route], ["*"], {}, { "test/default": toolPolicy }), {
    model: "public-model",
    messages,
    max_tokens: 500,
    stream,
    tools: [{ type: "web_search_20250305", name: "web_search" }],
  });
  const write = (line: string) => void logged.push(JSON.parse(line) as object);
  const error = await serve({ ...call, log: pino({ base: null }, { write }) }).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  return { call, error, sent: fake.requests.map((request) => request.text) };
}

test.each([false, true])(
  "rule 3.1: what no upstream can be sent is refused before a resent call runs, and free (streamed: %s)",
  async (stream) => {
    const pending = {
      type: "server_tool_use",
      id: "srvtoolu_1",
      name: "web_search",
      input: { query: "gates" },
    };
    const asked = (block: object) => [
      { role: "user", content: [block] },
      { role: "assistant", content: [pending] },
    ];
    const { call, error, sent } = await serveTools(asked({ type: "riddle" }), stream, "chat");
    expect(error).toMatchObject({ kind: { status: 400 } });
    expect(call.meter).toMatchObject({ settled: [], released: 1 });
    expect([sent, call.summary.toolCalls?.size ?? 0, call.sink.text]).toEqual([[], 0, ""]);
    fake.next(text("Nothing."));
    const sound = await serveTools(asked({ type: "text", text: "What is new?" }), stream, "chat");
    expect(sound.error).toBeNull();
    expect(sound.call.summary.toolCalls).toEqual(new Map([["web_search ok", 1]]));
    expect(sound.call.meter.settled).toMatchObject([{ status: "ok", iterations: 1 }]);
  },
);

test.each([false, true])(
  "rule 2.17: reasoning that another account made is left out and asked again (streamed: %s)",
  async (stream) => {
    fake.next(refused, searching("of-this-account"), text("Nothing."));
    const { call, error, sent } = await serveTools(earlier, stream);
    expect(error).toBeNull();
    expect(sent.map((request) => request.includes("of-another-account"))).toEqual([true, false, false]);
    // Reasoning that the answering upstream signed itself is sent back to it.
    expect(sent[2]).toContain("of-this-account");
    expect(call.meter.settled).toMatchObject([{ status: "ok", iterations: 2 }]);
  },
);

test("the same in a later iteration, whose upstream may be another one", async () => {
  fake.next(searching("of-the-first"), refused, text("Nothing."));
  const { call, error, sent } = await serveTools([{ role: "user", content: "What is new?" }], false);
  expect(error).toBeNull();
  expect(sent.map((request) => request.includes("of-the-first"))).toEqual([false, true, false]);
  expect(sent[2]).toContain("tool_result");
  expect(call.meter.settled).toMatchObject([{ status: "ok", iterations: 2 }]);
});

test.each<Dialect>(["messages", "chat", "responses"])(
  "where no tool may be called, nothing is said of a choice: %s",
  async (upstream) => {
    const route = routeTo([upstreamOf(fake.url, upstream)], { toolPolicy: "test/default" });
    const call = callOf("responses", snapshotOf([route], ["*"], {}, { "test/default": toolPolicy }), {
      model: "public-model",
      input: "Hi",
      tools: [{ type: "web_search" }],
      tool_choice: { type: "allowed_tools", mode: "auto", tools: [] },
    });
    fake.next(text("Hello"));
    await serve(call);
    const sent = fake.requests[0]?.json();
    expect(sent).not.toHaveProperty("tool_choice");
    expect(sent).not.toHaveProperty("tools");
  },
);

test("a refusal that stays is an error after one more try, and one without reasoning after none", async () => {
  fake.next(refused, refused, refused);
  expect((await serveTools(earlier, false)).error).toMatchObject({ code: "invalid_request" });
  expect(fake.requests).toHaveLength(2);
  fake.reset();
  fake.next(refused);
  const { call, error } = await serveTools([{ role: "user", content: "Hi" }], false);
  expect(error).toMatchObject({ code: "invalid_request" });
  expect(fake.requests).toHaveLength(1);
  expect(call.meter.released).toBe(1);
});

test("a streamed iteration that fails is charged as its upstream reports, and counted once", async () => {
  const response = { status: "failed", error: null, usage: { input_tokens: 30, output_tokens: 4 } };
  const body = [
    typedFrame("response.created", { response: { status: "in_progress" } }),
    typedFrame("response.output_text.delta", {
      output_index: 0,
      content_index: 0,
      delta: "Half an answer of words",
    }),
    typedFrame("response.failed", { response }),
  ].join("");
  fake.next(
    {
      answer: {
        parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }],
        usage: { input: 100, output: 50 },
      },
    },
    { raw: { body, contentType: "text/event-stream" } },
  );
  const { call } = await serveTools([{ role: "user", content: "What is new?" }], true, "responses");
  expect(call.sink.text).toContain("event: error");
  expect(call.meter.settled).toMatchObject([
    { status: "error", estimated: false, iterations: 2, tokens: { input: 130, output: 54 } },
  ]);
});

const events = "text/event-stream";
const usageOnly = { prompt_tokens: 900, completion_tokens: 7, total_tokens: 907 };
const noAnswers: [string, Extract<Step, { raw: object }>["raw"]][] = [
  ["a web page", { body: "<html><body>502 Bad Gateway</body></html>", contentType: "text/html" }],
  ["a page for events", { body: "data: <html><body>502 Bad Gateway</body></html>\n\n", contentType: events }],
  ["broken JSON", { body: '{"choices":[{"message":{"content":"Half an ans' }],
  ["a whole answer without its parts", { body: JSON.stringify({ object: "x", usage: usageOnly }) }],
];

test.each(noAnswers)(
  "rule 1.6: %s for a later iteration costs the same streamed as whole",
  async (_what, raw) => {
    const ask = async (stream: boolean) => {
      fake.reset();
      const usage = { input: 100, output: 50 };
      const parts = [{ type: "tool", name: "web_search", input: { query: "gates" } }] as const;
      fake.next({ answer: { parts, usage } }, { raw });
      const { call } = await serveTools([{ role: "user", content: "What is new?" }], stream, "chat");
      expect(fake.requests).toHaveLength(2);
      return call.meter.settled;
    };
    const whole = await ask(false);
    expect(whole).toMatchObject([{ status: "error", iterations: 2 }]);
    expect(whole[0]?.tokens.input).toBeGreaterThan(100);
    expect(await ask(true)).toEqual(whole);
  },
);

test.each([
  ["no answer at all", { body: "", contentType: events }],
  ["an error", { body: '{"error":{"type":"invalid_request_error","message":"no"}}' }],
])("%s for a later iteration is free, streamed as whole", async (_what, raw) => {
  for (const stream of [false, true]) {
    fake.reset();
    const usage = { input: 100, output: 50 };
    const parts = [{ type: "tool", name: "web_search", input: { query: "gates" } }] as const;
    fake.next({ answer: { parts, usage } }, { raw }, { raw }, { raw });
    const { call } = await serveTools([{ role: "user", content: "What is new?" }], stream, "chat");
    expect(call.meter.settled).toMatchObject([
      { status: "error", iterations: 1, tokens: { input: 100, output: 50 } },
    ]);
  }
});

test.each(["chat", "responses"] as const)(
  "rule 10.6: the prompt of a later iteration that %s reports nothing of holds what the tools brought",
  async (upstream) => {
    const ask = async (text: string) => {
      fake.reset();
      found = [{ url: "https://gates.example/", title: "Gates", text, age: null }];
      const silent = { faults: { noUsage: true } };
      fake.next(
        { answer: { parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }] }, ...silent },
        { answer: { parts: [{ type: "text", text: "Nothing." }] }, ...silent },
      );
      const { call } = await serveTools([{ role: "user", content: "What is new?" }], true, upstream);
      expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: true, iterations: 2 }]);
      return call.meter.settled[0]?.tokens.input ?? 0;
    };
    const [little, much] = [await ask("a gate"), await ask("a gate".padEnd(40_006, "."))];
    expect(much - little).toBe(10_000);
  },
);

/** Gives the reader of this dialect's streams a bug, from the event with the number `broken` on. */
function breakReader(dialect: Dialect, broken: number): void {
  const readStream = codecs[dialect].readStream.bind(codecs[dialect]);
  let events = 0;
  vi.spyOn(codecs[dialect], "readStream").mockImplementation((context) => {
    const reader = readStream(context);
    const step = reader.step.bind(reader);
    return Object.assign(reader, {
      step: (event: SseEvent) => {
        if ((events += 1) >= broken) throw new TypeError("a bug");
        return step(event);
      },
    });
  });
}

test("a stream that we misread ends the answer in-band, is logged with its cause, and charged", async () => {
  const usage = { input: 100, output: 50 };
  const faults = { delayAtEvent: { event: 3, ms: 30 } };
  fake.next({ answer: { parts: [{ type: "text", text: "A long answer." }], usage }, faults });
  breakReader("messages", 4);
  const { call, error, sent } = await serveTools([{ role: "user", content: "What is new?" }], true);
  expect([error, sent.length]).toEqual([null, 1]);
  expect(call.sink.text).toMatch(/event: message_start[^]*event: error\ndata: [^\n]*"api_error"[^\n]*\n\n$/);
  expect(call.sink.ended).toBe(true);
  expect(logged).toMatchObject([
    {
      level: 50,
      request_id: call.id,
      err: { type: "TypeError", message: "a bug" },
      msg: "a tool loop failed",
    },
  ]);
  expect(call.summary.errorCode).toBe("internal");
  expect(call.meter.settled).toMatchObject([{ status: "error", iterations: 1, tokens: { input: 100 } }]);
});

test("before its first event nothing is sent, and the bug is told to whoever serves", async () => {
  fake.next({ answer: { parts: [{ type: "text", text: "A long answer." }] } });
  breakReader("messages", 1);
  const { call, error, sent } = await serveTools([{ role: "user", content: "What is new?" }], true);
  expect([error, sent.length, call.sink.text]).toEqual([new TypeError("a bug"), 1, ""]);
  expect(call.meter.released + call.meter.settled.length).toBe(1);
});

test.each([false, true])(
  "blanks that a model writes before its calls do not go back to it (streamed: %s)",
  async (stream) => {
    const call = { type: "tool", name: "web_search", input: { query: "gates" } } as const;
    fake.next({ answer: { parts: [{ type: "text", text: "\n\n" }, call] } }, text("Nothing."));
    const { error } = await serveTools([{ role: "user", content: "Hi" }], stream);
    expect(error).toBeNull();
    expect(fake.requests[1]?.json()).toMatchObject({
      messages: [
        { role: "user" },
        { role: "assistant", content: [{ type: "tool_use" }] },
        { role: "user", content: [{ type: "tool_result" }] },
      ],
    });
  },
);

describe("what the service itself tells the model to do", () => {
  const withTools = (client: Dialect, upstream: Dialect, body: object) => {
    const route = routeTo([upstreamOf(fake.url, upstream)], { toolPolicy: "test/default" });
    const tools = {
      messages: { tools: [{ type: "web_search_20250305", name: "web_search" }] },
      chat: { web_search_options: {} },
      responses: { tools: [{ type: "web_search" }] },
    }[client];
    const snapshot = snapshotOf([route], ["*"], {}, { "test/default": toolPolicy });
    return callOf(client, snapshot, { model: "public-model", ...tools, ...body });
  };

  test.each<[Dialect, Dialect, object]>([
    ["chat", "messages", { messages: [{ role: "user", content: "" }] }],
    ["chat", "responses", { messages: [{ role: "user", content: [] }] }],
    ["responses", "messages", { input: [{ role: "user", content: " " }] }],
    ["responses", "chat", { input: [{ role: "user", content: [] }] }],
    ["messages", "chat", { messages: [{ role: "user", content: [] }] }],
    ["messages", "responses", { messages: [{ role: "user", content: [] }] }],
  ])("does not stand for what a %s client did not say: %s", async (client, upstream, body) => {
    await expect(serve(withTools(client, upstream, body))).rejects.toMatchObject({
      kind: { status: 400 },
      message: expect.stringContaining("the last turn has no content") as unknown,
    });
    expect(fake.requests).toEqual([]);
  });

  test("follows instructions of the client's that are all it says", async () => {
    fake.next(text("Done."));
    await serve(withTools("chat", "messages", { messages: [{ role: "system", content: "Greet." }] }));
    expect(fake.requests[0]?.json()).toMatchObject({
      messages: [
        { role: "user", content: expect.stringMatching(/^Greet\.\s+\[svc:servertools\]/) as unknown },
      ],
    });
  });
});

describe("where a client's declaration ends a prefix to be cached", () => {
  const cache_control = { type: "ephemeral" };
  const ask = async (upstream: Dialect) => {
    fake.next(text("Hello"));
    const route = routeTo([upstreamOf(fake.url, upstream)], { toolPolicy: "test/default" });
    const call = callOf("messages", snapshotOf([route], ["*"], {}, { "test/default": toolPolicy }), {
      model: "public-model",
      messages: [{ role: "user", content: "Hi" }],
      max_tokens: 500,
      tools: [{ type: "web_search_20250305", name: "web_search", cache_control }],
    });
    await serve(call);
    return { call, sent: fake.requests[0]?.json() };
  };

  test("a Messages upstream's ends at its function", async () => {
    const { call, sent } = await ask("messages");
    expect(sent).toMatchObject({ tools: [{ name: "web_search", cache_control }] });
    expect(call.sink.headers).not.toHaveProperty("x-gapura-dropped");
  });

  test.each<Dialect>(["chat", "responses"])("a %s upstream has no place for it", async (upstream) => {
    const { call } = await ask(upstream);
    expect(call.sink.headers).toMatchObject({ "x-gapura-dropped": "tools.cache_control" });
  });
});
