/** The official SDKs in each of the nine cells, whole and streamed: what comes, what it costs, and how it fails. */
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import type { Part, Step } from "../fakes/upstream/script.ts";
import { startInferenceWorld, type InferenceWorld } from "./inference-world.ts";

let world: InferenceWorld;
let anthropic: Anthropic;
let openai: OpenAI;
beforeAll(async () => {
  world = await startInferenceWorld();
  const settings = { apiKey: sampleKeys.inference, maxRetries: 0 };
  anthropic = new Anthropic({ ...settings, baseURL: world.server.url });
  openai = new OpenAI({ ...settings, baseURL: `${world.server.url}/v1` });
});
beforeEach(() => world.upstream.reset());
afterAll(() => world[Symbol.asyncDispose]());

/** What a client sees of an answer, whatever its dialect. */
interface Seen {
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly { readonly name: string; readonly input: unknown }[];
  readonly end: "end" | "tools" | "refusal" | "length";
  /** Of all classes. */
  readonly input: number;
  readonly output: number;
}

const parameters = { type: "object" as const, properties: { city: { type: "string" } } };
const png = "iVBORw0KGgo=";
const question = "How is the weather where this was taken?";

const ends: Readonly<Record<string, Seen["end"]>> = {
  end_turn: "end",
  tool_use: "tools",
  max_tokens: "length",
  stop: "end",
  tool_calls: "tools",
  content_filter: "refusal",
  length: "length",
  refusal: "refusal",
};

async function askMessages(model: string, stream: boolean): Promise<Seen> {
  const body: Anthropic.MessageCreateParamsNonStreaming = {
    model,
    max_tokens: 500,
    thinking: { type: "adaptive" },
    tools: [{ name: "weather", input_schema: parameters }],
    messages: [
      {
        role: "user",
        content: [
          { type: "image", source: { type: "base64", media_type: "image/png", data: png } },
          { type: "text", text: question },
        ],
      },
    ],
  };
  const message = await (stream
    ? anthropic.messages.stream(body).finalMessage()
    : anthropic.messages.create(body));
  const { usage } = message;
  return {
    text: message.content.map((block) => (block.type === "text" ? block.text : "")).join(""),
    reasoning: message.content.map((block) => (block.type === "thinking" ? block.thinking : "")).join(""),
    calls: message.content.flatMap((block) =>
      block.type === "tool_use" ? [{ name: block.name, input: block.input }] : [],
    ),
    end: ends[message.stop_reason ?? ""] ?? "end",
    input: usage.input_tokens + (usage.cache_read_input_tokens ?? 0),
    output: usage.output_tokens,
  };
}

async function askChat(model: string, stream: boolean): Promise<Seen> {
  const body = {
    model,
    reasoning_effort: "low" as const,
    tools: [{ type: "function" as const, function: { name: "weather", parameters } }],
    messages: [
      {
        role: "user" as const,
        content: [
          { type: "image_url" as const, image_url: { url: `data:image/png;base64,${png}` } },
          { type: "text" as const, text: question },
        ],
      },
    ],
  };
  let reasoning = "";
  const completion = await (stream
    ? openai.chat.completions
        .stream({ ...body, stream_options: { include_usage: true } })
        // The SDK knows no such field, and keeps the last delta alone.
        .on("chunk", ({ choices }) => (reasoning += reasoningOf(choices[0]?.delta)))
        .finalChatCompletion()
    : openai.chat.completions.create(body));
  const [choice] = completion.choices;
  const calls = choice?.message.tool_calls ?? [];
  return {
    // A refusal has a field of its own in whole answers, and is text in streams (rule 2.15).
    text: (choice?.message.content ?? "") + (choice?.message.refusal ?? ""),
    reasoning: stream ? reasoning : reasoningOf(choice?.message),
    calls: calls.flatMap((call) =>
      call.type === "function"
        ? [{ name: call.function.name, input: JSON.parse(call.function.arguments) as unknown }]
        : [],
    ),
    end: ends[choice?.finish_reason ?? ""] ?? "end",
    input: completion.usage?.prompt_tokens ?? 0,
    output: completion.usage?.completion_tokens ?? 0,
  };
}

function reasoningOf(message: object | undefined): string {
  const text = message !== undefined && "reasoning_content" in message ? message.reasoning_content : "";
  return typeof text === "string" ? text : "";
}

async function askResponses(model: string, stream: boolean): Promise<Seen> {
  const body = {
    model,
    reasoning: { effort: "low" as const, summary: "auto" as const },
    tools: [{ type: "function" as const, name: "weather", parameters, strict: false }],
    input: [
      {
        role: "user" as const,
        content: [
          {
            type: "input_image" as const,
            image_url: `data:image/png;base64,${png}`,
            detail: "auto" as const,
          },
          { type: "input_text" as const, text: question },
        ],
      },
    ],
  };
  const response = await (stream
    ? openai.responses.stream(body).finalResponse()
    : openai.responses.create(body));
  const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
  const calls = response.output.flatMap((item) =>
    item.type === "function_call" ? [{ name: item.name, input: JSON.parse(item.arguments) as unknown }] : [],
  );
  const reason = response.incomplete_details?.reason;
  return {
    text: parts.map((part) => (part.type === "refusal" ? part.refusal : part.text)).join(""),
    reasoning: response.output
      .flatMap((item) => (item.type === "reasoning" ? item.summary.map(({ text }) => text) : []))
      .join(""),
    calls,
    end:
      reason === "content_filter"
        ? "refusal"
        : reason === "max_output_tokens"
          ? "length"
          : calls.length > 0
            ? "tools"
            : "end",
    input: response.usage?.input_tokens ?? 0,
    output: response.usage?.output_tokens ?? 0,
  };
}

const ask: Record<Dialect, (model: string, stream: boolean) => Promise<Seen>> = {
  messages: askMessages,
  chat: askChat,
  responses: askResponses,
};

const usage = { input: 80, cacheRead: 20, output: 10 };
/** Micro-credits of one answer, at the sample prices. */
const charge = 80n * 96n + (20n * 96n) / 10n + 10n * 480n;
const text = (said: string): Part => ({ type: "text", text: said });
const weather = (city: string): Part => ({ type: "tool", name: "weather", input: { city } });

interface Case {
  readonly parts: readonly Part[];
  readonly stop?: "length";
  readonly seen: Partial<Seen>;
  /** Where it is another than in a converted cell. */
  readonly relayed?: Partial<Seen>;
}

const answers: Record<string, Case> = {
  text: { parts: [text("It rains there.")], seen: { text: "It rains there.", calls: [], end: "end" } },
  "a tool call": {
    parts: [text("Let me look."), weather("Ubud")],
    seen: { text: "Let me look.", calls: [{ name: "weather", input: { city: "Ubud" } }], end: "tools" },
  },
  "parallel tool calls": {
    parts: [weather("Ubud"), weather("Bandung")],
    seen: {
      calls: [
        { name: "weather", input: { city: "Ubud" } },
        { name: "weather", input: { city: "Bandung" } },
      ],
      end: "tools",
    },
  },
  thinking: {
    parts: [{ type: "thinking", text: "A wet roof.", signature: "c2ln" }, text("It rains.")],
    seen: { reasoning: "A wet roof.", text: "It rains.", end: "end" },
  },
  "a refusal": {
    parts: [{ type: "refusal", text: "That is private." }],
    seen: { text: "That is private.", end: "refusal" },
    // OpenAI's own refusals finish in the ordinary way, and relay leaves them as they are.
    relayed: { text: "That is private." },
  },
  "an answer at its limit": {
    parts: [text("It rains and")],
    stop: "length",
    seen: { text: "It rains and", end: "length" },
  },
};

const cells = dialects.flatMap((client) => dialects.map((upstream) => ({ client, upstream })));

describe.each(cells)("a $client client of a $upstream upstream", ({ client, upstream }) => {
  const model = `m-${upstream}`;

  describe.each([false, true])("streamed: %s", (stream) => {
    test.each(Object.entries(answers))("%s, at its exact price", async (_, { parts, stop, ...expected }) => {
      const seen = client === upstream ? (expected.relayed ?? expected.seen) : expected.seen;
      world.upstream.next({ answer: { parts, usage, ...(stop !== undefined && { stop }) } });
      const before = await world.credit();
      expect(await ask[client](model, stream)).toMatchObject({ ...seen, input: 100, output: 10 });
      const after = await world.credit();
      expect(after).toMatchObject({ used: before.used + charge, held: 0n });
      const [request] = world.upstream.requests;
      expect(request?.path).toBe(dialectPath[upstream]);
      expect(request?.text).toContain(png);
      expect(request?.text).toContain(question);
    });

    test.each([
      [{ error: { status: 529 } }, client === "messages" ? 529 : 503],
      [{ error: { status: 400, message: "temperature: too high" } }, 400],
      [{ error: { status: 401, message: "invalid key sk-of-the-provider" } }, 502],
    ] as [Step, number][])("an error before the first byte is one of the SDK: %j", async (step, status) => {
      world.upstream.model("upstream-model", step);
      const before = await world.credit();
      const error = await ask[client](model, stream).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(client === "messages" ? Anthropic.APIError : OpenAI.APIError);
      expect(error).toMatchObject({ status });
      expect(String(error)).not.toContain("sk-of-the-provider");
      expect(await world.credit()).toEqual(before);
    });
  });

  test("a cut stream is an error, never a short answer, and costs what was seen", async () => {
    const parts = [text("one two three four five six seven eight")];
    world.upstream.next({ answer: { parts, usage }, faults: { cutAtEvent: 6 } });
    const before = await world.credit();
    await expect(ask[client](model, true)).rejects.toThrow(/./);
    const after = await world.credit();
    expect(after.used).toBeGreaterThan(before.used);
    expect(after.held).toBe(0n);
  });
});
