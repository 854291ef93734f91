import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { readReplay } from "./replay.ts";
import { text, type Step } from "./script.ts";
import { startUpstream, type FakeUpstream } from "./server.ts";
import { sdkClients } from "../sdk-clients.ts";

let upstream: FakeUpstream;
let anthropic: Anthropic;
let openai: OpenAI;
beforeAll(async () => {
  upstream = await startUpstream();
  ({ anthropic, openai } = sdkClients(upstream.url, "key"));
});
afterAll(() => upstream.close());
beforeEach(() => upstream.reset());

const usage = {
  input: 100,
  cacheRead: 20,
  cacheWrite5m: 3,
  cacheWrite1h: 4,
  output: 50,
  reasoning: 30,
};
const everything: Step = {
  answer: {
    parts: [
      { type: "thinking", text: "let me think", signature: "sig" },
      { type: "text", text: "I will call two tools." },
      { type: "tool", name: "weather", input: { city: "Bandung" } },
      { type: "tool", name: "clock", input: {} },
    ],
    usage,
  },
};
const question = [{ role: "user" as const, content: "hello" }];

describe("the official SDKs read every answer, whole and streamed alike", () => {
  test("Messages", async () => {
    upstream.model("m", everything);
    const request = { model: "m", max_tokens: 100, messages: question };
    const whole = await anthropic.messages.create(request);
    const streamed = await anthropic.messages.stream(request).finalMessage();
    const shape = (message: Anthropic.Message) =>
      message.content.map((block) => ({ ...block, ...("id" in block ? { id: "" } : {}) }));
    expect(shape(streamed)).toEqual(shape(whole));
    for (const message of [whole, streamed]) {
      expect(message.stop_reason).toBe("tool_use");
      expect(message.usage).toMatchObject({
        input_tokens: 100,
        cache_read_input_tokens: 20,
        cache_creation_input_tokens: 7,
        output_tokens: 50,
      });
    }
  });

  test("Chat Completions", async () => {
    upstream.model("m", everything);
    const request = { model: "m", messages: question };
    const whole = await openai.chat.completions.create(request);
    const streamed = await openai.chat.completions
      .stream({ ...request, stream_options: { include_usage: true } })
      .finalChatCompletion();
    for (const completion of [whole, streamed]) {
      expect(completion.choices[0]).toMatchObject({
        finish_reason: "tool_calls",
        message: {
          content: "I will call two tools.",
          tool_calls: [
            { function: { name: "weather", arguments: '{"city":"Bandung"}' } },
            { function: { name: "clock", arguments: "{}" } },
          ],
        },
      });
      expect(completion.usage).toMatchObject({
        prompt_tokens: 127,
        completion_tokens: 50,
        prompt_tokens_details: { cached_tokens: 20 },
        completion_tokens_details: { reasoning_tokens: 30 },
      });
    }
  });

  test("Responses", async () => {
    upstream.model("m", everything);
    const request = { model: "m", input: "hello" };
    const whole = await openai.responses.create(request);
    const streamed = await openai.responses.stream(request).finalResponse();
    for (const response of [whole, streamed]) {
      expect(response.status).toBe("completed");
      expect(response.output.map(({ type }) => type)).toEqual([
        "reasoning",
        "message",
        "function_call",
        "function_call",
      ]);
      expect(response.output_text).toBe("I will call two tools.");
      expect(response.usage).toMatchObject({
        input_tokens: 127,
        output_tokens: 50,
        input_tokens_details: { cached_tokens: 20 },
        output_tokens_details: { reasoning_tokens: 30 },
      });
    }
  });

  test("a refusal and a cut by length", async () => {
    upstream.next(
      { answer: { parts: [{ type: "refusal", text: "no" }] } },
      { answer: { parts: [{ type: "text", text: "half" }], stop: "length" } },
    );
    const refused = await openai.chat.completions.create({ model: "m", messages: question });
    expect(refused.choices[0]?.message.refusal).toBe("no");
    const half = await openai.responses.stream({ model: "m", input: "x" }).finalResponse();
    expect(half).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
    });
  });

  test("count_tokens", async () => {
    const { input_tokens } = await anthropic.messages.countTokens({ model: "m", messages: question });
    expect(input_tokens).toBeGreaterThan(0);
  });
});

describe("faults", () => {
  const post = (stream: boolean, signal?: AbortSignal) =>
    fetch(`${upstream.url}/v1/messages`, {
      method: "POST",
      body: JSON.stringify({ model: "m", stream, messages: question }),
      ...(signal === undefined ? {} : { signal }),
    });
  const answer = text("one two three four five six");

  test("a status comes with the provider's own error body and headers", async () => {
    upstream.next({ error: { status: 429 }, headers: { "retry-after": "7" } });
    const response = await post(false);
    expect(response.status).toBe(429);
    expect(response.headers.get("retry-after")).toBe("7");
    expect(await response.json()).toMatchObject({ error: { type: "rate_limit_error" } });
  });

  test.each([
    ["cut at an event", { cutAtEvent: 4 }],
    ["cut at a byte", { cutAtByte: 100 }],
    ["reset before the headers", { reset: true }],
    ["reset at a byte", { resetAtByte: 100 }],
  ])("%s: the reader sees a broken connection", async (_, faults) => {
    upstream.next({ ...answer, faults });
    await expect(post(true).then((response) => response.text())).rejects.toThrow(/fetch failed|terminated/);
  });

  test.each([
    ["hang", { hang: true }],
    ["stall at an event", { stallAtEvent: 4 }],
    ["stall at a byte", { stallAtByte: 50 }],
  ])("%s: nothing comes, until the reader gives up, which the log tells", async (_, faults) => {
    upstream.next({ ...answer, faults });
    await expect(post(true, AbortSignal.timeout(80)).then((response) => response.text())).rejects.toThrow(
      /abort/i,
    );
    const logged = await upstream.arrived(1);
    await expect.poll(() => logged.outcome).toBe("aborted");
  });

  test("a missing terminal event, a malformed event, an empty body, a page, an error in the stream", async () => {
    upstream.next(
      { ...answer, faults: { noTerminal: true } },
      { ...answer, faults: { malformedAtEvent: 2 } },
      { ...answer, faults: { empty: true } },
      { ...answer, faults: { html: true } },
      { ...answer, faults: { errorAtEvent: { event: 3 } } },
    );
    expect(await (await post(true)).text()).not.toContain("message_stop");
    const lines = (await (await post(true)).text()).split("\n").filter((line) => line.startsWith("data: "));
    expect(() => JSON.parse(lines[2]?.slice(6) ?? "{}") as unknown).toThrow(/JSON/);
    expect(await (await post(true)).text()).toBe("");
    const page = await post(false);
    expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html"]);
    expect(await (await post(true)).text()).toMatch(/event: error\n.*overloaded_error/);
  });

  test("one event of a given size", async () => {
    upstream.next({ ...answer, faults: { hugeBytes: 300_000 } });
    expect((await (await post(true)).text()).length).toBeGreaterThan(300_000);
  });

  test("time passes where the script says so", async () => {
    upstream.next({ ...answer, faults: { delayHeadersMs: 40, delayFirstByteMs: 40 } });
    const started = performance.now();
    const response = await post(true);
    const headersAfter = performance.now() - started;
    await response.text();
    expect(headersAfter).toBeGreaterThan(35);
    expect(performance.now() - started).toBeGreaterThan(75);
  });

  test("connections are refused while it is paused", async () => {
    await upstream.pause();
    await expect(post(false)).rejects.toThrow(/fetch failed/);
    await upstream.resume();
    expect((await post(false)).status).toBe(200);
  });
});

describe("scripts", () => {
  const ask = async (model: string) =>
    (await openai.chat.completions.create({ model, messages: question })).choices[0]?.message.content;

  test("the queue goes first, then the model's script in turn, whose last step repeats", async () => {
    upstream.model("m", [text("first"), text("second")]);
    upstream.next(text("queued"));
    expect([await ask("m"), await ask("m"), await ask("m"), await ask("m")]).toEqual([
      "queued",
      "first",
      "second",
      "second",
    ]);
  });

  test("a function sees the request, and the log holds its exact bytes", async () => {
    upstream.model("m", ({ question: asked }) => text(`asked: ${asked}`));
    const body = '{"model":"m", "messages":[{"role":"user","content":"h\\u00e9"}],"big":9007199254740993}';
    await fetch(`${upstream.url}/v1/messages?beta=true`, {
      method: "POST",
      body,
      headers: { "X-Api-Key": "k" },
    });
    expect(upstream.requests[0]).toMatchObject({ path: "/v1/messages?beta=true", text: body });
    expect(upstream.requests[0]?.headers["x-api-key"]).toBe("k");
  });

  test("a server in another process is steered and read over HTTP", async () => {
    await fetch(`${upstream.url}/_fake/next`, {
      method: "POST",
      body: JSON.stringify({ steps: [text("steered")] }),
    });
    expect(await ask("any")).toBe("steered");
    const log = (await (await fetch(`${upstream.url}/_fake/requests`)).json()) as { path: string }[];
    expect(log.map(({ path }) => path)).toEqual(["/v1/chat/completions"]);
  });

  test("recorded exchanges are replayed: by equal body, else in order", async () => {
    const folder = mkdtempSync(join(tmpdir(), "gapura-replay-"));
    const record = (name: string, content: string, answer: string) => {
      const path = "/v1/chat/completions";
      writeFileSync(join(folder, `${name}.request.json`), JSON.stringify({ path, body: { content } }));
      writeFileSync(join(folder, `${name}.response.json`), JSON.stringify({ body: { answer } }));
    };
    record("1", "a", "first");
    record("2", "b", "second");
    await using replaying = await startUpstream({ replay: readReplay(folder) });
    const send = async (content: string) =>
      (
        await fetch(`${replaying.url}/v1/chat/completions`, {
          method: "POST",
          body: JSON.stringify({ content }),
        })
      ).json();
    expect([await send("b"), await send("unknown")]).toEqual([{ answer: "second" }, { answer: "first" }]);
    rmSync(folder, { recursive: true });
  });
});
