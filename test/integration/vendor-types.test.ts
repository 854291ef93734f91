/**
 * What `npm start` answers fits the vendors' own types: each of the demo's models to clients of each dialect, whole and
 * streamed, relayed, converted and in the tool loop.
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { streamFaults, vendorJudge } from "../vendor/judge.ts";
import { vendorType } from "../vendor/vendor-type.ts";
import { startProduct, temporaryFolder, type Product } from "./product.ts";

const judge = await vendorJudge();
const folder = temporaryFolder();
const data = join(folder.path, "data");
let product: Product;
let key: string;
beforeAll(async () => {
  product = await startProduct({ manifests: resolve(import.meta.dirname, "../../hack/demo"), data });
  key = readFileSync(join(data, "secrets", "default", "demo-key", "api-key"), "utf8").trim();
});
afterAll(async () => {
  await product?.stop();
  folder[Symbol.dispose]();
});

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const turn = (content: string) => [{ role: "user", content }];
const search = "Search for the gapura gate";
const weather = "What is the weather in Jakarta?";

/** One body of each kind and dialect. */
const asked: Record<"text" | "function" | "search", Record<Dialect, object>> = {
  text: {
    messages: { messages: turn("Hello"), max_tokens: 200 },
    chat: { messages: turn("Hello") },
    responses: { input: "Hello" },
  },
  function: {
    messages: {
      messages: turn(weather),
      max_tokens: 200,
      tools: [{ name: "weather", input_schema: parameters }],
    },
    chat: {
      messages: turn(weather),
      tools: [{ type: "function", function: { name: "weather", parameters } }],
    },
    responses: { input: weather, tools: [{ type: "function", name: "weather", parameters }] },
  },
  search: {
    messages: {
      messages: turn(search),
      max_tokens: 500,
      tools: [{ type: "web_search_20250305", name: "web_search" }],
    },
    chat: { messages: turn(search), web_search_options: {} },
    responses: { input: search, tools: [{ type: "web_search" }] },
  },
};

const headers = () => ({ authorization: `Bearer ${key}`, "content-type": "application/json" });
async function answer(dialect: Dialect, body: object): Promise<string> {
  const init = { method: "POST", headers: headers(), body: JSON.stringify(body) };
  const response = await fetch(product.url + dialectPath[dialect], init);
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return text;
}

describe.each(["demo-messages", "demo-chat", "demo-responses"])("%s", (model) => {
  describe.each(dialects)("for a %s client", (dialect) => {
    test.each(["text", "function", "search"] as const)("%s", async (kind) => {
      const body = { model, ...asked[kind][dialect] };
      const whole = await answer(dialect, body);
      expect(judge(vendorType(dialect, "Answer"), JSON.parse(whole))).toEqual([]);
      const usage = dialect === "chat" ? { stream_options: { include_usage: true } } : {};
      const stream = await answer(dialect, { ...body, ...usage, stream: true });
      expect(streamFaults(judge, dialect, stream)).toEqual([]);
      expect(stream.length).toBeGreaterThan(200);
    });
  });
});

test("the list of models in Messages style", async () => {
  const response = await fetch(`${product.url}/v1/models`, {
    headers: { ...headers(), "anthropic-version": "2023-06-01" },
  });
  const { data: models } = (await response.json()) as { data: object[] };
  expect(models.length).toBeGreaterThan(2);
  expect(models.flatMap((model) => judge("MessagesModel", model))).toEqual([]);
});
