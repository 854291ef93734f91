/**
 * Client libraries in each of the nine cells: tool loops of three steps, whole and streamed. The libraries resend
 * what they were given, so that both halves of the codecs are seen to fit each other.
 */
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import type { AIMessage, BaseMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import type { LanguageModel, ToolSet } from "ai";
import OpenAI from "openai";
import { describe, expect, test } from "vitest";
import { convertStream, convertWhole, eventsOf, testCarry } from "../../test/grammar/convert.ts";
import { inProcessGateway } from "../../test/grammar/in-process-gateway.ts";
import { accumulated } from "../../test/grammar/sdk-judges.ts";
import { scriptedStream, uncut } from "../../test/grammar/scripted-answer.ts";
import type { ScriptedAnswer } from "../../test/grammar/scripted-answer.ts";
import type { Annotate, SseEvent } from "./codecs.ts";
import { dialectPath, dialects } from "./dialect.ts";
import type { JsonObject } from "./messages/types.ts";

const usage = { input: 100, cached: 20, output: 10 };
const thinking = (text: string) => ({ kind: "thinking" as const, text, opaque: "opaque==" });
const call = (id: string, city: string) => ({
  kind: "tool" as const,
  id,
  name: "weather",
  input: { city },
});

/** First one call, then two at once, then the answer; thinking before each. */
const turns: readonly ScriptedAnswer[] = [
  {
    blocks: [thinking("Where is it?"), { kind: "text", text: "Let me look." }, call("call_1", "Jakarta")],
    stop: "tools",
    usage,
  },
  {
    blocks: [thinking("Two more."), call("call_2", "Bandung"), call("call_3", "Ubud")],
    stop: "tools",
    usage,
  },
  { blocks: [thinking("All known."), { kind: "text", text: "Rain everywhere." }], stop: "end", usage },
];
const script = (turn: number): ScriptedAnswer => {
  const answer = turns[turn];
  if (answer === undefined) throw new Error(`the library asks a ${turn + 1}th time`);
  return answer;
};

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

/** The provider that knows no `reasoning_content`, which is nothing of OpenAI's. */
const showsReasoning = (name: string) => name !== "openai (chat)";
/** Those whose dialect can carry a signature back. */
const resendsReasoning = (name: string) => name === "openai (responses)" || name === "anthropic";

describe.each(dialects)("the AI SDK over a %s upstream", (upstream) => {
  const request = (model: LanguageModel, cities: string[]) => ({
    model,
    prompt: "How is the weather?",
    stopWhen: isStepCount(5),
    maxRetries: 0,
    tools: {
      weather: tool({
        description: "Tells the weather of a city.",
        inputSchema: jsonSchema<{ city: string }>({
          type: "object",
          properties: { city: { type: "string" } },
          required: ["city"],
        }),
        execute: ({ city }) => {
          cities.push(city);
          return `Rain in ${city}`;
        },
      }),
    },
    providerOptions: { openai: { store: false, include: ["reasoning.encrypted_content"] } },
  });

  test.each(Object.keys(providers))(
    "runs a tool loop of three steps with its %s provider, whole",
    async (name) => {
      const gateway = inProcessGateway(upstream, script);
      const model = providers[name]?.(gateway.fetch);
      const cities: string[] = [];
      const result = await generateText(request(model ?? "none", cities));
      expect(result.text).toBe("Rain everywhere.");
      expect(cities).toEqual(["Jakarta", "Bandung", "Ubud"]);
      expect(result.steps.map(({ finishReason }) => finishReason)).toEqual([
        "tool-calls",
        "tool-calls",
        "stop",
      ]);
      expect(result.steps[0]?.reasoningText).toBe(showsReasoning(name) ? "Where is it?" : undefined);
      expect(JSON.stringify(gateway.asked[1]).includes("opaque==")).toBe(
        resendsReasoning(name) && upstream !== "chat",
      );
      expect(result.steps[0]?.usage).toMatchObject({ inputTokens: 100, outputTokens: 10 });
    },
  );

  test.each(Object.keys(providers))("runs the same loop with its %s provider, streamed", async (name) => {
    const gateway = inProcessGateway(upstream, script);
    const model = providers[name]?.(gateway.fetch);
    const cities: string[] = [];
    const errors: unknown[] = [];
    const result = streamText({
      ...request(model ?? "none", cities),
      onError: ({ error }) => void errors.push(error),
    });
    const text = await result.text;
    expect(errors).toEqual([]);
    expect(gateway.faults).toEqual([]);
    expect(text).toBe("Rain everywhere.");
    expect(cities).toEqual(["Jakarta", "Bandung", "Ubud"]);
    const steps = await result.steps;
    expect(steps.map(({ finishReason }) => finishReason)).toEqual(["tool-calls", "tool-calls", "stop"]);
    expect(steps[0]?.text).toBe("Let me look.");
    expect(steps[0]?.reasoningText).toBe(showsReasoning(name) ? "Where is it?" : undefined);
    expect(JSON.stringify(gateway.asked[2]).includes("opaque==")).toBe(
      resendsReasoning(name) && upstream !== "chat",
    );
    expect(steps[0]?.usage).toMatchObject({ inputTokens: 100, outputTokens: 10 });
  });
});

const lookup = {
  type: "function" as const,
  function: {
    name: "weather",
    description: "Tells the weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const chains: Record<string, (fetch: typeof globalThis.fetch) => ChatOpenAI | ChatAnthropic> = {
  "ChatOpenAI (chat)": (fetch) =>
    new ChatOpenAI({
      model: "public-model",
      apiKey: "sk-svc-test",
      maxRetries: 0,
      configuration: { baseURL: "http://gateway.invalid/v1", fetch },
    }),
  "ChatOpenAI (responses)": (fetch) =>
    new ChatOpenAI({
      model: "public-model",
      apiKey: "sk-svc-test",
      maxRetries: 0,
      useResponsesApi: true,
      zdrEnabled: true,
      configuration: { baseURL: "http://gateway.invalid/v1", fetch },
    }),
  ChatAnthropic: (fetch) =>
    new ChatAnthropic({
      model: "public-model",
      apiKey: "sk-svc-test",
      maxRetries: 0,
      clientOptions: { baseURL: "http://gateway.invalid", fetch },
    }),
};

describe.each(dialects)("LangChain over a %s upstream", (upstream) => {
  const cases = Object.keys(chains).flatMap((name) => [
    { name, streamed: false },
    { name, streamed: true },
  ]);
  test.each(cases)(
    "$name runs a tool loop of three steps, streamed: $streamed",
    async ({ name, streamed }) => {
      const gateway = inProcessGateway(upstream, script);
      const model = chains[name]?.(gateway.fetch);
      const bound = model?.bindTools([lookup]);
      const conversation: BaseMessage[] = [new HumanMessage("How is the weather?")];
      const said: AIMessage[] = [];
      for (let turn = 0; turn < turns.length; turn += 1) {
        const message = await (streamed ? gathered(bound, conversation) : bound?.invoke(conversation));
        if (message === undefined) throw new Error("no answer");
        said.push(message);
        conversation.push(message);
        for (const { id, args } of message.tool_calls ?? [])
          conversation.push(
            new ToolMessage({ tool_call_id: id ?? "", content: `Rain in ${String(args["city"])}` }),
          );
      }
      expect(gateway.faults).toEqual([]);
      expect(
        said.map((message) => (message.tool_calls ?? []).map(({ args }) => String(args["city"]))),
      ).toEqual([["Jakarta"], ["Bandung", "Ubud"], []]);
      expect(said.at(-1)?.text).toBe("Rain everywhere.");
    },
  );
});

type Bound = ReturnType<ChatOpenAI["bindTools"]> | ReturnType<ChatAnthropic["bindTools"]> | undefined;

async function gathered(bound: Bound, conversation: BaseMessage[]): Promise<AIMessage | undefined> {
  const chunks = await bound?.stream(conversation);
  let whole;
  for await (const chunk of chunks ?? []) whole = whole === undefined ? chunk : whole.concat(chunk);
  return whole;
}

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
