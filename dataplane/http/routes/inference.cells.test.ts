/** All nine cells through the real HTTP server, asked by the official SDKs, over a scripted upstream. */
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { RecordingMeter, routeTo, snapshotOf, upstreamOf } from "../../../test/fakes/inference.ts";
import { sampleKeys } from "../../../test/fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../../../test/fakes/test-server.ts";
import type { Answer, Part, Step } from "../../../test/fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../../../test/fakes/upstream/server.ts";
import { type Dialect, dialects } from "../../dialects/dialect.ts";
import { SEALED_PREFIX } from "../../dialects/reasoning.ts";
import { createServe } from "../../inference/serve.ts";
import { sealing } from "../../lib/seal.ts";
import { Upstreams } from "../../upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../upstream/dispatcher.ts";
import { inferenceRoutes } from "./inference.ts";
import { noTools } from "../../../test/fakes/no-tools.ts";

let fake: FakeUpstream;
let dispatcher: Dispatcher;
let server: TestServer;
let meter: RecordingMeter;
let clients: Record<Dialect, Client>;

const usage = { input: 11, cacheRead: 5, cacheWrite5m: 0, cacheWrite1h: 0, output: 7, reasoning: 2 };
const step = (...parts: Part[]): Step => ({ answer: { parts, usage } satisfies Answer });
const pixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** What a client made of an answer, in words that are the same for all three. */
interface Read {
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly { readonly id: string; readonly name: string; readonly input: unknown }[];
  readonly refused: boolean;
  /** The answer as the client resends it. */
  readonly turn: readonly object[];
}

interface Ask {
  readonly model: string;
  readonly stream: boolean;
  /** Turns of the client's own form. */
  readonly turns: readonly object[];
  readonly tools?: boolean;
  readonly think?: boolean;
}

/** One dialect's SDK behind the same few verbs. */
interface Client {
  ask(ask: Ask): Promise<Read>;
  user(text: string): object;
  image(text: string): object;
  results(results: readonly { readonly id: string; readonly text: string }[]): object[];
}

const parameters = { type: "object" as const, properties: { city: { type: "string" } }, required: ["city"] };

function messagesClient(baseURL: string): Client {
  const sdk = new Anthropic({ apiKey: sampleKeys.inference, baseURL, maxRetries: 0 });
  return {
    user: (text) => ({ role: "user", content: text }),
    image: (text) => ({
      role: "user",
      content: [
        { type: "text", text },
        { type: "image", source: { type: "base64", media_type: "image/png", data: pixel } },
      ],
    }),
    results: (results) => [
      {
        role: "user",
        content: results.map(({ id, text }) => ({ type: "tool_result", tool_use_id: id, content: text })),
      },
    ],
    async ask({ model, stream, turns, tools, think }) {
      const body: Anthropic.MessageCreateParamsNonStreaming = {
        model,
        max_tokens: 500,
        messages: turns as Anthropic.MessageParam[],
        ...(tools === true && { tools: [{ name: "get_weather", input_schema: parameters }] }),
        ...(think === true && { thinking: { type: "adaptive" }, output_config: { effort: "high" } }),
      };
      const message = stream
        ? await sdk.messages.stream(body).finalMessage()
        : await sdk.messages.create(body);
      const { content } = message;
      return {
        text: content.map((block) => (block.type === "text" ? block.text : "")).join(""),
        reasoning: content.map((block) => (block.type === "thinking" ? block.thinking : "")).join(""),
        calls: content.flatMap((block) =>
          block.type === "tool_use" ? [{ id: block.id, name: block.name, input: block.input }] : [],
        ),
        refused: message.stop_reason === "refusal",
        turn: [{ role: "assistant", content }],
      };
    },
  };
}

function chatClient(baseURL: string): Client {
  const sdk = new OpenAI({ apiKey: sampleKeys.inference, baseURL, maxRetries: 0 });
  return {
    user: (text) => ({ role: "user", content: text }),
    image: (text) => ({
      role: "user",
      content: [
        { type: "text", text },
        { type: "image_url", image_url: { url: `data:image/png;base64,${pixel}` } },
      ],
    }),
    results: (results) => results.map(({ id, text }) => ({ role: "tool", tool_call_id: id, content: text })),
    async ask({ model, stream, turns, tools, think }) {
      const body: OpenAI.ChatCompletionCreateParamsNonStreaming = {
        model,
        messages: turns as OpenAI.ChatCompletionMessageParam[],
        ...(tools === true && {
          tools: [{ type: "function", function: { name: "get_weather", parameters } }],
        }),
        ...(think === true && { reasoning_effort: "high" }),
      };
      let reasoning = "";
      let completion: OpenAI.ChatCompletion;
      if (stream) {
        const run = sdk.chat.completions.stream({ ...body, stream: true });
        run.on("chunk", (chunk) => {
          const delta = chunk.choices[0]?.delta as { reasoning_content?: string } | undefined;
          reasoning += delta?.reasoning_content ?? "";
        });
        completion = await run.finalChatCompletion();
      } else completion = await sdk.chat.completions.create(body);
      const choice = completion.choices[0];
      if (choice === undefined) throw new Error("no choice");
      const message = choice.message as OpenAI.ChatCompletionMessage & { reasoning_content?: string };
      if (!stream) reasoning = message.reasoning_content ?? "";
      return {
        text: message.content ?? message.refusal ?? "",
        reasoning,
        calls: (message.tool_calls ?? []).flatMap((call) =>
          call.type === "function"
            ? [
                {
                  id: call.id,
                  name: call.function.name,
                  input: JSON.parse(call.function.arguments) as unknown,
                },
              ]
            : [],
        ),
        refused: choice.finish_reason === "content_filter",
        turn: [{ ...message, ...(reasoning !== "" && { reasoning_content: reasoning }) }],
      };
    },
  };
}

function responsesClient(baseURL: string): Client {
  const sdk = new OpenAI({ apiKey: sampleKeys.inference, baseURL, maxRetries: 0 });
  return {
    user: (text) => ({ role: "user", content: text }),
    image: (text) => ({
      role: "user",
      content: [
        { type: "input_text", text },
        { type: "input_image", image_url: `data:image/png;base64,${pixel}`, detail: "auto" },
      ],
    }),
    results: (results) =>
      results.map(({ id, text }) => ({ type: "function_call_output", call_id: id, output: text })),
    async ask({ model, stream, turns, tools, think }) {
      const body: OpenAI.Responses.ResponseCreateParamsNonStreaming = {
        model,
        store: false,
        input: turns as OpenAI.Responses.ResponseInput,
        include: ["reasoning.encrypted_content"],
        ...(tools === true && {
          tools: [{ type: "function", name: "get_weather", parameters, strict: false }],
        }),
        ...(think === true && { reasoning: { effort: "high", summary: "auto" } }),
      };
      const response = stream
        ? await sdk.responses.stream({ ...body, stream: true }).finalResponse()
        : await sdk.responses.create(body);
      const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
      return {
        text: parts.map((part) => (part.type === "output_text" ? part.text : part.refusal)).join(""),
        reasoning: response.output
          .flatMap((item) => (item.type === "reasoning" ? item.summary.map(({ text }) => text) : []))
          .join(""),
        calls: response.output.flatMap((item) =>
          item.type === "function_call"
            ? [{ id: item.call_id, name: item.name, input: JSON.parse(item.arguments) as unknown }]
            : [],
        ),
        refused: response.incomplete_details?.reason === "content_filter",
        turn: response.output,
      };
    },
  };
}

beforeAll(async () => {
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
  const serve = createServe(
    new Upstreams(dispatcher),
    sealing([{ id: "test", key: Buffer.alloc(32) }]),
    noTools,
  );
  const routes = dialects.map((dialect) =>
    routeTo([upstreamOf(fake.url, dialect)], { model: `over-${dialect}`, aliases: [] }),
  );
  const snapshot = snapshotOf(routes);
  const proxy = { open: (...args: Parameters<RecordingMeter["open"]>) => meter.open(...args) };
  const principal = {
    kind: "inference",
    keyId: "apikey_1",
    keyName: "test",
    expiresAt: null,
    limits: [],
    organizationId: "org_a",
    projectId: "default",
    keyEpoch: 0,
  } as const;
  server = await startTestServer([inferenceRoutes({ meter: proxy, serve })], {
    snapshot: () => snapshot,
    services: {
      directory: {
        find: () => principal,
        knows: () => true,
        findQueued: async () => principal,
        findAgain: async () => principal,
      },
    },
  });
  clients = {
    messages: messagesClient(server.url),
    chat: chatClient(`${server.url}/v1`),
    responses: responsesClient(`${server.url}/v1`),
  };
});
beforeEach(() => {
  fake.reset();
  meter = new RecordingMeter();
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await dispatcher.destroy();
  await fake.close();
});

const cells = dialects.flatMap((client) =>
  dialects.flatMap((upstream) =>
    [false, true].map((stream) => ({ client, upstream, stream, how: stream ? "streamed" : "whole" })),
  ),
);
const sent = (index: number): string => JSON.stringify(fake.requests[index]?.json() ?? null);

describe.each(cells)("$client client, $upstream upstream, $how", ({ client: name, upstream, stream }) => {
  const model = `over-${upstream}`;
  const charged = () =>
    expect(meter.settled.at(-1)).toMatchObject({ status: "ok", estimated: false, tokens: usage });

  test("text", async () => {
    const client = clients[name];
    fake.next(step({ type: "text", text: "Grüße, 世界 👋" }));
    const read = await client.ask({ model, stream, turns: [client.user("Hi")] });
    expect(read).toMatchObject({ text: "Grüße, 世界 👋", calls: [], refused: false });
    charged();
  });

  test("parallel tools, and the conversation goes on with their results", async () => {
    const client = clients[name];
    fake.next(
      step(
        { type: "text", text: "Let me look." },
        { type: "tool", name: "get_weather", input: { city: "Oslo" } },
        { type: "tool", name: "get_weather", input: { city: "Rome" } },
      ),
      step({ type: "text", text: "Cold and warm." }),
    );
    const first = await client.ask({ model, stream, turns: [client.user("Weather?")], tools: true });
    expect(first.text).toBe("Let me look.");
    expect(first.calls.map(({ input }) => input)).toEqual([{ city: "Oslo" }, { city: "Rome" }]);
    charged();
    const results = first.calls.map(({ id }, index) => ({ id, text: `result ${index}` }));
    const turns = [client.user("Weather?"), ...first.turn, ...client.results(results)];
    const second = await client.ask({ model, stream, turns, tools: true });
    expect(second.text).toBe("Cold and warm.");
    for (const { id, text } of results) {
      expect(sent(1)).toContain(JSON.stringify(id));
      expect(sent(1)).toContain(text);
    }
    charged();
  });

  test("thinking, which goes back to the upstream that made it", async () => {
    const client = clients[name];
    fake.next(
      step(
        { type: "thinking", text: "Let me think.", signature: "c2lnbmF0dXJl" },
        { type: "text", text: "42" },
      ),
      step({ type: "text", text: "Yes." }),
    );
    const first = await client.ask({ model, stream, turns: [client.user("Why?")], think: true });
    expect(first).toMatchObject({ text: "42", reasoning: "Let me think." });
    charged();
    const turns = [client.user("Why?"), ...first.turn, client.user("Sure?")];
    await client.ask({ model, stream, turns, think: true });
    expect(sent(1)).not.toContain(SEALED_PREFIX);
    // Chat has no place for what the other two dialects need back.
    if (name !== "chat" && upstream !== "chat") expect(sent(1)).toContain("c2lnbmF0dXJl");
    if (upstream === "chat") expect(sent(1)).toContain("Let me think.");
  });

  test("an image", async () => {
    const client = clients[name];
    fake.next(step({ type: "text", text: "A dot." }));
    await client.ask({ model, stream, turns: [client.image("What is this?")] });
    expect(sent(0)).toContain(pixel);
    charged();
  });

  test("a refusal", async () => {
    const client = clients[name];
    fake.next(step({ type: "refusal", text: "I will not." }));
    const read = await client.ask({ model, stream, turns: [client.user("Do it")] });
    // A relayed answer says what its upstream says.
    expect(read.refused || name === upstream).toBe(true);
    expect(read.text + JSON.stringify(read.turn)).toContain("I will not.");
    charged();
  });

  test("an error before the first byte is a status of its own", async () => {
    const client = clients[name];
    fake.next({ error: { status: 500, message: "sk-secret exploded" } });
    const error: unknown = await client
      .ask({ model, stream, turns: [client.user("Hi")] })
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ status: 502 });
    expect(String(error)).not.toContain("sk-secret");
    expect(meter).toMatchObject({ settled: [], released: 1 });
  });

  test("a cut answer is never taken for a whole one", async () => {
    const client = clients[name];
    fake.next(
      withFaults(step({ type: "text", text: "One two three four five six" }), {
        cutAtByte: stream ? 700 : 200,
      }),
    );
    await expect(client.ask({ model, stream, turns: [client.user("Hi")] })).rejects.toThrow(Error);
  });
});
