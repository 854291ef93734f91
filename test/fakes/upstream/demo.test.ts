import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { text, toolCall } from "./script.ts";
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

describe("the demo model", () => {
  const ask = async (content: string, more: object = {}) =>
    (
      await anthropic.messages.create({
        model: "m",
        max_tokens: 200,
        messages: [{ role: "user", content }],
        ...more,
      })
    ).content;
  const weather = {
    name: "get_weather",
    input_schema: {
      type: "object" as const,
      properties: { city: { type: "string" } },
      required: ["city"],
    },
  };

  test.each([
    ["Hello there", /^Hello!/],
    ["What is 12 * 7?", /= 84$/],
    ["Count to 5", /^1 2 3 4 5$/],
    ['Say "selamat pagi"', /^selamat pagi$/],
    ["What is the capital of Indonesia?", /Jakarta/],
  ])("%s", async (content, expected) => {
    expect(await ask(content)).toMatchObject([{ type: "text", text: expect.stringMatching(expected) }]);
  });

  test("a declared tool is called when the question asks for it, and not otherwise", async () => {
    expect(await ask("What is the weather in Bandung?", { tools: [weather] })).toMatchObject([
      { type: "tool_use", name: "get_weather", input: { city: "Bandung" } },
    ]);
    expect(await ask("Hello", { tools: [weather] })).toMatchObject([{ type: "text" }]);
  });

  test("after the tool ran it tells the result, with links", async () => {
    const messages = [
      { role: "user", content: "Search for gapura" },
      {
        role: "assistant",
        content: [{ type: "tool_use", id: "t1", name: "web_search", input: {} }],
      },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "t1",
            content: "Gapura\nhttps://example.com/a\nA gate.",
          },
        ],
      },
    ];
    expect(await ask("", { messages, tools: [{ ...weather, name: "web_search" }] })).toMatchObject([
      { type: "text", text: expect.stringContaining("[example.com](https://example.com/a)") },
    ]);
  });

  test("a script in the question is followed", async () => {
    const script = JSON.stringify([toolCall("a", {}), text("done")]);
    expect(await ask(`please {{script: ${script}}}`)).toMatchObject([{ type: "tool_use", name: "a" }]);
  });

  test("the token limit cuts the answer", async () => {
    const message = await anthropic.messages.create({
      model: "m",
      max_tokens: 2,
      messages: [{ role: "user", content: "Count to 50" }],
    });
    expect(message).toMatchObject({ stop_reason: "max_tokens", usage: { output_tokens: 2 } });
  });

  test("a schema is filled in", async () => {
    const response = await openai.responses.create({
      model: "m",
      input: "Bandung has 3 rivers",
      text: {
        format: {
          type: "json_schema",
          name: "fact",
          schema: {
            type: "object",
            properties: { city: { type: "string" }, rivers: { type: "integer" } },
            required: ["city", "rivers"],
          },
        },
      },
    });
    expect(JSON.parse(response.output_text)).toMatchObject({ rivers: 3 });
    // By this LangChain knows that there is something to parse.
    expect(response.text?.format).toMatchObject({ type: "json_schema", name: "fact" });
  });
});
