/**
 * Client libraries in each cell, over HTTP with real stores: a tool loop of three steps that thinks, whole and
 * streamed. The libraries resend what they were given, so that both halves of every codec are seen to fit each
 * other, and reasoning is seen to come back to whoever made it.
 */
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatAnthropic } from "@langchain/anthropic";
import type { AIMessage, BaseMessage } from "@langchain/core/messages";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import {
  Agent,
  OpenAIChatCompletionsModel,
  OpenAIResponsesModel,
  Runner,
  tool as agentTool,
} from "@openai/agents";
import { generateText, isStepCount, jsonSchema, type LanguageModel, streamText, tool } from "ai";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import type { JsonObject } from "../../dataplane/dialects/messages/types.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import type { Part, Step } from "../fakes/upstream/script.ts";
import { faultsOf, testCarry } from "../grammar/convert.ts";
import { startInferenceWorld, type InferenceWorld } from "./inference-world.ts";

// The models are unknown to the libraries.
Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false });

let world: InferenceWorld;
beforeAll(async () => {
  world = await startInferenceWorld();
});
beforeEach(() => world.upstream.reset());
afterAll(() => world[Symbol.asyncDispose]());

const thinking = (text: string): Part => ({ type: "thinking", text, signature: `sealed ${text}` });
const call = (id: string, city: string): Part => ({ type: "tool", id, name: "weather", input: { city } });
const usage = { input: 80, cacheRead: 20, output: 10 };
/** First one call, then two at once, then the answer; thinking before each. */
const turns: readonly (readonly Part[])[] = [
  [thinking("Where is it?"), { type: "text", text: "Let me look." }, call("call_1", "Jakarta")],
  [thinking("Two more."), call("call_2", "Bandung"), call("call_3", "Ubud")],
  [thinking("All known."), { type: "text", text: "Rain everywhere." }],
];
const steps = turns.map((parts): Step => ({ answer: { parts, usage } }));
/** Micro-credits of the three steps, at the sample prices. */
const charge = 3n * (80n * 96n + (20n * 96n) / 10n + 10n * 480n);

const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] } as const;
const rain = (name: string) => `Rain in ${name}`;

interface Asking {
  /** Public model id. */
  readonly model: string;
  readonly stream: boolean;
  readonly fetch: typeof fetch;
  /** Told the cities that the model asks about. */
  readonly asked: (city: string) => void;
}
interface Library {
  readonly client: Dialect;
  /** What comes of the loop: the last text. */
  readonly ask: (asking: Asking) => Promise<string>;
}

const settings = ({ fetch }: Asking) => ({
  apiKey: sampleKeys.inference,
  baseURL: `${world.server.url}/v1`,
  fetch,
});

const aiSdk = (client: Dialect, modelOf: (asking: Asking) => LanguageModel): Library => ({
  client,
  ask: async (asking) => {
    const request = {
      model: modelOf(asking),
      prompt: "How is the weather?",
      stopWhen: isStepCount(5),
      maxRetries: 0,
      tools: {
        weather: tool({
          inputSchema: jsonSchema<{ city: string }>({ ...city, required: ["city"] }),
          execute: (input) => {
            asking.asked(input.city);
            return rain(input.city);
          },
        }),
      },
    };
    const result = asking.stream ? streamText(request) : await generateText(request);
    const said = await result.steps;
    expect(said.map(({ finishReason }) => finishReason)).toEqual(["tool-calls", "tool-calls", "stop"]);
    expect(said[0]?.usage).toMatchObject({ inputTokens: 100, outputTokens: 10 });
    return await result.text;
  },
});

const langChain = (client: Dialect, modelOf: (asking: Asking) => ChatOpenAI | ChatAnthropic): Library => ({
  client,
  ask: async (asking) => {
    const bound = modelOf(asking).bindTools([
      { type: "function", function: { name: "weather", parameters: city } },
    ]);
    const conversation: BaseMessage[] = [new HumanMessage("How is the weather?")];
    for (;;) {
      const message = await (asking.stream ? gathered(bound, conversation) : bound.invoke(conversation));
      if (message?.tool_calls === undefined || message.tool_calls.length === 0) return message?.text ?? "";
      conversation.push(message);
      for (const { id, args } of message.tool_calls) {
        const name = String(args["city"]);
        asking.asked(name);
        conversation.push(new ToolMessage({ tool_call_id: id ?? "", content: rain(name) }));
      }
    }
  },
});

type Bound = ReturnType<ChatOpenAI["bindTools"]> | ReturnType<ChatAnthropic["bindTools"]>;

async function gathered(bound: Bound, conversation: BaseMessage[]): Promise<AIMessage | undefined> {
  let whole;
  for await (const chunk of await bound.stream(conversation))
    whole = whole === undefined ? chunk : whole.concat(chunk);
  return whole;
}

const agents = (
  client: Dialect,
  modelOf: (client: OpenAI, model: string) => OpenAIResponsesModel | OpenAIChatCompletionsModel,
): Library => ({
  client,
  ask: async (asking) => {
    const agent = new Agent({
      name: "weather agent",
      model: modelOf(new OpenAI({ ...settings(asking), maxRetries: 0 }), asking.model),
      tools: [
        agentTool({
          name: "weather",
          description: "Tells the weather of a city.",
          parameters: z.object({ city: z.string() }),
          execute: (input) => {
            asking.asked(input.city);
            return rain(input.city);
          },
        }),
      ],
    });
    const runner = new Runner({ tracingDisabled: true });
    if (!asking.stream) return (await runner.run(agent, "How is the weather?")).finalOutput ?? "";
    const result = await runner.run(agent, "How is the weather?", { stream: true });
    await result.completed;
    return result.finalOutput ?? "";
  },
});

const libraries: Record<string, Library> = {
  "AI SDK, openai (responses)": aiSdk("responses", (asking) =>
    createOpenAI(settings(asking)).responses(asking.model),
  ),
  "AI SDK, openai (chat)": aiSdk("chat", (asking) => createOpenAI(settings(asking)).chat(asking.model)),
  "AI SDK, anthropic": aiSdk("messages", (asking) => createAnthropic(settings(asking))(asking.model)),
  "AI SDK, openai-compatible": aiSdk("chat", (asking) =>
    createOpenAICompatible({ ...settings(asking), name: "gapura", includeUsage: true })(asking.model),
  ),
  "LangChain, ChatOpenAI (responses)": langChain("responses", (asking) => chatOpenAi(asking, true)),
  "LangChain, ChatOpenAI (chat)": langChain("chat", (asking) => chatOpenAi(asking, false)),
  "LangChain, ChatAnthropic": langChain("messages", ({ model, fetch }) => {
    const clientOptions = { baseURL: world.server.url, fetch };
    return new ChatAnthropic({ model, apiKey: sampleKeys.inference, maxRetries: 0, clientOptions });
  }),
  "Agents SDK (responses)": agents("responses", (client, model) => new OpenAIResponsesModel(client, model)),
  "Agents SDK (chat)": agents("chat", (client, model) => new OpenAIChatCompletionsModel(client, model)),
};

function chatOpenAi(asking: Asking, useResponsesApi: boolean): ChatOpenAI {
  const { apiKey, ...configuration } = settings(asking);
  return new ChatOpenAI({ model: asking.model, apiKey, maxRetries: 0, useResponsesApi, configuration });
}

/** `fetch`, with the answers to streaming requests kept together with what asked for them. */
function recording(streams: { body: JsonObject; text: Promise<string> }[]): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    const body = (await request.clone().json()) as JsonObject;
    const response = await fetch(request);
    if (body["stream"] === true) streams.push({ body, text: response.clone().text() });
    return response;
  };
}

/** Chat has no place for a signature, neither at a client nor at an upstream. */
const signed = (client: Dialect, to: Dialect) => client !== "chat" && to !== "chat";

describe.each(dialects)("over a %s upstream", (to) => {
  const cases = Object.entries(libraries).flatMap(([name, { client, ask }]) =>
    [false, true].map((stream) => ({ name, client, ask, stream })),
  );
  test.each(cases)("$name runs a loop of three steps, streamed: $stream", async ({ client, ask, stream }) => {
    const { upstream } = world;
    upstream.next(...steps);
    const before = await world.credit();
    const cities: string[] = [];
    const streams: { body: JsonObject; text: Promise<string> }[] = [];
    const text = await ask({
      model: `m-${to}`,
      stream,
      fetch: recording(streams),
      asked: (name) => void cities.push(name),
    });
    expect(text).toBe("Rain everywhere.");
    expect(cities).toEqual(["Jakarta", "Bandung", "Ubud"]);
    expect(upstream.requests.map(({ path }) => path)).toEqual(Array(3).fill(dialectPath[to]));
    const last = upstream.requests[2]?.text ?? "";
    for (const said of ["Rain in Jakarta", "Rain in Bandung", "Rain in Ubud"]) expect(last).toContain(said);
    expect(last).not.toContain("item_reference");
    for (const sealed of ["sealed Where is it?", "sealed Two more."])
      expect(last.includes(sealed)).toBe(signed(client, to));
    expect(streams).toHaveLength(stream ? 3 : 0);
    for (const { body, text: said } of streams)
      expect(faultsOf(await said, testCarry(client, body), "end")).toEqual([]);
    const after = await world.credit();
    expect(after.used - before.used).toBe(charge);
    expect(after.held).toBe(0n);
  });
});
