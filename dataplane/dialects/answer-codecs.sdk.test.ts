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
import type { LanguageModel } from "ai";
import OpenAI from "openai";
import { describe, expect, test } from "vitest";
import { convertStream, eventsOf, testCarry } from "../../test/grammar/convert.ts";
import { inProcessGateway } from "../../test/grammar/in-process-gateway.ts";
import { accumulated } from "../../test/grammar/sdk-judges.ts";
import { scriptedStream, uncut } from "../../test/grammar/scripted-answer.ts";
import type { ScriptedAnswer } from "../../test/grammar/scripted-answer.ts";
import { dialects } from "./dialect.ts";

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
