/** `npm start`'s demo: each of its server tools answers, in each dialect that has it. */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startProduct, temporaryFolder, type Product } from "./product.ts";

const folder = temporaryFolder();
const data = join(folder.path, "data");
let product: Product;
let anthropic: Anthropic;
let openai: OpenAI;
beforeAll(async () => {
  product = await startProduct({ manifests: resolve(import.meta.dirname, "../../hack/demo"), data });
  const apiKey = readFileSync(join(data, "secrets", "default", "demo-key", "api-key"), "utf8").trim();
  anthropic = new Anthropic({ baseURL: product.url, apiKey, maxRetries: 0 });
  openai = new OpenAI({ baseURL: `${product.url}/v1`, apiKey, maxRetries: 0 });
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
