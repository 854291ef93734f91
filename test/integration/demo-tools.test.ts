/** `npm start`'s demo: each of its server tools answers in each dialect that has it, and the page on batches is true. */
import { execFile } from "node:child_process";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import type Anthropic from "@anthropic-ai/sdk";
import { generateText, streamText, type ModelMessage } from "ai";
import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startProduct, temporaryFolder, type Product } from "./product.ts";
import { sdkClients } from "../fakes/sdk-clients.ts";

const folder = temporaryFolder();
const data = join(folder.path, "data");
let product: Product;
let anthropic: Anthropic;
let openai: OpenAI;
beforeAll(async () => {
  product = await startProduct({ manifests: resolve(import.meta.dirname, "../../hack/demo"), data });
  const apiKey = readFileSync(join(data, "secrets", "default", "demo-key", "api-key"), "utf8").trim();
  ({ anthropic, openai } = sdkClients(product.url, apiKey));
});
afterAll(async () => {
  await product?.stop();
  folder[Symbol.dispose]();
});

const models = ["demo-messages", "demo-chat", "demo-responses"] as const;
const question = "Search for the gapura gate";

const ask = async (model: string, content: string, tool: object) =>
  anthropic.messages.create({
    model,
    max_tokens: 1_000,
    messages: [{ role: "user", content }],
    tools: [tool as Anthropic.ToolUnion],
  });

describe.each(models)("%s", (model) => {
  test("web_search", async () => {
    const search = { type: "web_search_20250305", name: "web_search" };
    const message = await ask(model, question, search);
    const result = message.content.find(({ type }) => type === "web_search_tool_result");
    expect(result).toMatchObject({
      content: [{ type: "web_search_result", title: "Gapura, the Javanese gate" }, {}, {}],
    });
    expect(message).toMatchObject({
      stop_reason: "end_turn",
      usage: { server_tool_use: { web_search_requests: 1 } },
    });

    const chat = await openai.chat.completions.create({
      model,
      web_search_options: {},
      messages: [{ role: "user", content: question }],
    });
    expect(chat.choices[0]?.finish_reason).toBe("stop");
    expect(chat.choices[0]?.message.annotations?.length).toBeGreaterThan(0);

    const response = await openai.responses.create({
      model,
      input: question,
      tools: [{ type: "web_search" }],
    });
    expect(response.output[0]).toMatchObject({ type: "web_search_call", status: "completed" });
    expect(response.output_text).toContain("gapura");
  });

  test("the AI SDK's second turn, with what it keeps of the first", async () => {
    const options = { apiKey: anthropic.apiKey ?? "", baseURL: `${product.url}/v1` };
    const [messages, responses] = [createAnthropic(options), createOpenAI(options)];
    const providers = [
      { model: messages(model), tools: { web_search: messages.tools.webSearch_20250305({}) } },
      { model: responses.responses(model), tools: { web_search: responses.tools.webSearch({}) } },
    ];
    for (const { model: speaking, tools } of providers) {
      for (const how of [generateText, streamText]) {
        const asked: ModelMessage[] = [{ role: "user", content: question }];
        const first = how({ model: speaking, tools, messages: asked, maxOutputTokens: 500 });
        const { messages: said } = await (await first).response;
        const second = generateText({
          model: speaking,
          tools,
          messages: [...asked, ...said, { role: "user", content: "Hello!" }],
          maxOutputTokens: 500,
        });
        expect((await second).text).toContain(model);
      }
    }
  });

  test("web_fetch, of a page that a search found", async () => {
    const found = await ask(model, question, { type: "web_search_20250305", name: "web_search" });
    const result = found.content.find(({ type }) => type === "web_search_tool_result");
    const [first] = (result as Anthropic.WebSearchToolResultBlock)
      .content as Anthropic.WebSearchResultBlock[];
    const message = await ask(model, `Open ${first?.url}`, { type: "web_fetch_20250910", name: "web_fetch" });
    expect(message.content.find(({ type }) => type === "web_fetch_tool_result")).toMatchObject({
      content: {
        type: "web_fetch_result",
        content: { type: "document", title: "Gapura, the Javanese gate" },
      },
    });
  });

  test("x_search", async () => {
    const message = await ask(model, "Posts about gates", { type: "x_search_20261005", name: "x_search" });
    const result = message.content.find(({ type }) => type === "web_search_tool_result");
    expect((result as Anthropic.WebSearchToolResultBlock).content).toHaveLength(2);
    expect(message.usage.server_tool_use).toMatchObject({ web_search_requests: 1, x_search_requests: 1 });
  });
});

describe("the examples of docs/batches.md run as they stand there", () => {
  const root = resolve(import.meta.dirname, "../..");
  const page = readFileSync(join(root, "docs/batches.md"), "utf8");
  const examples = [...page.matchAll(/^```ts\n(.*?)^```$/gms)].map((match) => match[1] ?? "");
  beforeAll(() => symlinkSync(join(root, "node_modules"), join(folder.path, "node_modules")));

  /** Only the address is another one, and the test does not wait five seconds between two looks. */
  async function run(name: string): Promise<string> {
    const example = examples.find((text) => text.includes(`from "${name}"`)) ?? "";
    expect(example).toContain("http://127.0.0.1:8080");
    const file = join(folder.path, `${name.replaceAll("/", "-")}.ts`);
    const here = example.replaceAll("http://127.0.0.1:8080", product.url).replaceAll("5_000", "100");
    writeFileSync(file, here);
    const key = readFileSync(join(data, "secrets", "default", "demo-key", "api-key"), "utf8").trim();
    const env = { PATH: process.env["PATH"], GAPURA_KEY: key };
    return (await promisify(execFile)(process.execPath, [file], { env, timeout: 30_000 })).stdout;
  }

  test("Anthropic", async () => {
    const printed = await run("@anthropic-ai/sdk");
    expect(printed).toMatch(/^gates \[/m);
    expect(printed).toMatch(/^bridges \[/m);
    expect(printed).toContain("server_tool_use");
  });

  test("OpenAI", async () => {
    const lines = (await run("openai")).trim().split("\n");
    const results = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines[0]).toContain("web_search_call");
    expect(results).toMatchObject([
      { custom_id: "gates", error: null, response: { status_code: 200 } },
      { custom_id: "bridges", error: null, response: { status_code: 200 } },
    ]);
  });
});

test("the requests of docs/tools.md are served as they stand there, whole and streamed", async () => {
  const page = readFileSync(resolve(import.meta.dirname, "../../docs/tools.md"), "utf8");
  const key = readFileSync(join(data, "secrets", "default", "demo-key", "api-key"), "utf8").trim();
  const requests = [...page.matchAll(/^```json\n(.*?)^```$/gms)]
    .map(([, text = ""]) => JSON.parse(text) as Readonly<Record<string, unknown>>)
    .filter((body) => "model" in body);
  expect(requests).toHaveLength(3);
  for (const body of requests)
    for (const stream of [false, true]) {
      const path = "input" in body ? "responses" : "max_tokens" in body ? "messages" : "chat/completions";
      const answer = await fetch(`${product.url}/v1/${path}`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ ...body, stream }),
      });
      expect([path, stream, answer.status, await answer.text()]).toEqual([
        path,
        stream,
        200,
        expect.not.stringContaining('"error":{'),
      ]);
    }
});
