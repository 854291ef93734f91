/**
 * What client libraries make of a stream that fails, and of a tool loop that the gateway ran. Their own tool loops
 * in each cell: test/integration/client-libraries.test.ts.
 */
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import type { LanguageModel, ToolSet } from "ai";
import OpenAI from "openai";
import { describe, expect, test } from "vitest";
import { convertStream, convertWhole, eventsOf, testCarry } from "../../test/grammar/convert.ts";
import { accumulated } from "../../test/grammar/sdk-judges.ts";
import { scriptedBody, scriptedStream, uncut } from "../../test/grammar/scripted-answer.ts";
import type { Annotate, SseEvent } from "./codecs.ts";
import { dialectPath, dialects } from "./dialect.ts";
import type { JsonObject } from "./messages/types.ts";

const usage = { input: 100, cached: 20, output: 10 };
const settings = (fetch: typeof globalThis.fetch) => ({
  apiKey: "sk-svc-test",
  baseURL: "http://gateway.invalid/v1",
  fetch,
});
const providers: Record<string, (fetch: typeof globalThis.fetch) => LanguageModel> = {
  "openai (responses)": (fetch) => createOpenAI(settings(fetch)).responses("public-model"),
  "openai (chat)": (fetch) => createOpenAI(settings(fetch)).chat("public-model"),
  anthropic: (fetch) => createAnthropic(settings(fetch))("public-model"),
  "openai-compatible": (fetch) =>
    createOpenAICompatible({ ...settings(fetch), name: "gapura", includeUsage: true })("public-model"),
};

describe("a stream that fails on the way, read by the official SDKs", () => {
  const cut = eventsOf(
    scriptedStream.chat({ blocks: [{ kind: "text", text: "So far" }], stop: "end", usage }, uncut),
  ).slice(0, 2);

  test("Messages: an APIError of the right type that names the request", async () => {
    const { bytes, terminal } = convertStream("chat", cut, testCarry("messages"));
    const error = await accumulated.messages(bytes + terminal).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(Anthropic.APIError);
    expect(error).toMatchObject({ error: { error: { type: "api_error" }, request_id: "req_test" } });
  });

  test.each(["chat", "responses"] as const)("%s: an APIError with our code", async (dialect) => {
    const { bytes, terminal } = convertStream("chat", cut, testCarry(dialect));
    const error = await accumulated[dialect](bytes + terminal).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(OpenAI.APIError);
    expect(error).toMatchObject({ code: "upstream_error" });
  });
});

describe("the AI SDK and a tool loop that the gateway ran", () => {
  const found = [
    {
      type: "web_search_result",
      url: "https://a.example/",
      title: "A",
      encrypted_content: "x",
      page_age: null,
    },
  ];
  const page = {
    type: "web_fetch_result",
    url: "https://a.example/",
    retrieved_at: null,
    content: {
      type: "document",
      source: { type: "text", media_type: "text/plain", data: "Text" },
      title: "A",
      citations: { enabled: false },
    },
  };
  const content: JsonObject[] = [
    { type: "text", text: "Searching." },
    { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "a" } },
    { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: found },
    { type: "server_tool_use", id: "srvtoolu_2", name: "web_fetch", input: { url: "https://a.example/" } },
    { type: "web_fetch_tool_result", tool_use_id: "srvtoolu_2", content: page },
    { type: "text", text: "See [A](https://a.example/)." },
  ];
  const message: JsonObject = {
    type: "message",
    content,
    stop_reason: "end_turn",
    usage: { input_tokens: 9, output_tokens: 9 },
  };
  const annotate: Annotate = (text) => {
    const start = text.indexOf("[A]");
    return start < 0
      ? []
      : [{ start_index: start, end_index: start + 24, url: "https://a.example/", title: "A" }];
  };

  /** Answers with the loop's message, in the dialect of the path. */
  const answeringFetch = (async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    const dialect = dialects.find((name) => new URL(request.url).pathname === dialectPath[name]) ?? "chat";
    const body = (await request.json()) as JsonObject;
    const carry = testCarry(dialect, body, { serverTools: true });
    if (body["stream"] !== true) return Response.json(convertWhole("messages", message, carry, annotate));
    const { bytes, terminal } = convertStream("messages", streamed(content), carry, annotate);
    return new Response(bytes + terminal, { headers: { "content-type": "text/event-stream" } });
  }) as typeof fetch;

  const tools: Record<string, ToolSet> = {
    "openai (responses)": { web_search: createOpenAI({}).tools.webSearch() },
    "openai (chat)": {},
    anthropic: {
      web_search: createAnthropic({}).tools.webSearch_20250305(),
      web_fetch: createAnthropic({}).tools.webFetch_20250910(),
    },
    "openai-compatible": {},
  };

  test.each(Object.keys(providers))("%s: text and sources arrive, whole and streamed", async (name) => {
    const model = providers[name]?.(answeringFetch) ?? "none";
    const request = { model, prompt: "Search.", maxRetries: 0, tools: tools[name] ?? {} };
    const whole = await generateText(request);
    const errors: unknown[] = [];
    const stream = streamText({ ...request, onError: ({ error }) => void errors.push(error) });
    const text = await stream.text;
    expect(errors).toEqual([]);
    expect(whole.text).toContain("See [A](https://a.example/).");
    expect(text).toBe(whole.text);
    const urls = (sources: readonly { sourceType: string }[]) =>
      sources.flatMap((source) => ("url" in source ? [source.url] : []));
    expect(urls(await stream.sources)).toEqual(urls(whole.sources));
    // The last one knows nothing of annotations.
    expect(urls(whole.sources)).toEqual(name === "openai-compatible" ? [] : ["https://a.example/"]);
  });
});

// The AI SDK's providers up to their third version refuse the whole answer where this is null.
test.each(dialects)("a Messages text without citations has an empty list of them, from %s", (from) => {
  const answer = { blocks: [{ kind: "text", text: "Plain" }], stop: "end", usage } as const;
  const whole = convertWhole(from, scriptedBody[from](answer), testCarry("messages"));
  expect(whole["content"]).toEqual([{ type: "text", text: "Plain", citations: [] }]);
  const events = eventsOf(scriptedStream[from](answer, uncut));
  const start = eventsOf([convertStream(from, events, testCarry("messages")).bytes])
    .map(({ data }) => JSON.parse(data) as JsonObject)
    .find(({ type }) => type === "content_block_start");
  expect(start?.["content_block"]).toEqual({ type: "text", text: "", citations: [] });
});

/** The events of a Messages stream that holds these blocks. */
function streamed(content: readonly JsonObject[]): SseEvent[] {
  const events: JsonObject[] = [
    { type: "message_start", message: { id: "msg_1", usage: { input_tokens: 9, output_tokens: 0 } } },
  ];
  content.forEach((block, index) => {
    const input = { ...block, ...(block["type"] === "server_tool_use" ? { input: {} } : {}) };
    events.push({ type: "content_block_start", index, content_block: input });
    if (block["type"] === "server_tool_use")
      events.push({
        type: "content_block_delta",
        index,
        delta: { type: "input_json_delta", partial_json: JSON.stringify(block["input"]) },
      });
    events.push({ type: "content_block_stop", index });
  });
  events.push(
    { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 9 } },
    { type: "message_stop" },
  );
  return events.map((data) => ({ event: "", data: JSON.stringify(data) }));
}
