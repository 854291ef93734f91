import { beforeEach, expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../../test/fakes/inference.ts";
import { sealedSignature, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { text, type Step } from "../../test/fakes/upstream/script.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { SearchHit } from "../tools/outcomes.ts";

/** What the searches of a test find. */
let found: readonly SearchHit[] = [];
beforeEach(() => {
  found = [];
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
  const error = await serve(call).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  return { call, error, sent: fake.requests.map((request) => request.text) };
}

test.each([false, true])(
  "rule 2.17: reasoning that another account made is left out and asked again (streamed: %s)",
  async (stream) => {
    fake.next(refused, searching("of-this-account"), text("Nothing."));
    const { call, error, sent } = await serveTools(earlier, stream);
    expect(error).toBeNull();
    expect(sent.map((request) => request.includes("of-another-account"))).toEqual([true, false, false]);
    // What the upstream that answers has signed itself goes back to it.
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
  const event = (type: string, more: object): string =>
    `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
  const response = { status: "failed", error: null, usage: { input_tokens: 30, output_tokens: 4 } };
  const body = [
    event("response.created", { response: { status: "in_progress" } }),
    event("response.output_text.delta", {
      output_index: 0,
      content_index: 0,
      delta: "Half an answer of words",
    }),
    event("response.failed", { response }),
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
