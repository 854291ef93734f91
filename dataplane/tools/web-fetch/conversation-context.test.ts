import { describe, expect, test } from "vitest";
import type { Dialect } from "../../dialects/dialect.ts";
import type { JsonObject, JsonValue } from "../../dialects/messages/types.ts";
import { conversationContext } from "./conversation-context.ts";

const url = "https://gates.example/new";
const text = `Look at ${url}, please.`;
const file = {
  filename: "a.txt",
  file_data: `data:text/plain;base64,${Buffer.from(text).toString("base64")}`,
};
const messages = (...turns: JsonValue[]): JsonObject => ({ messages: turns });
const input = (...items: JsonValue[]): JsonObject => ({ input: items });
const citation = { type: "url_citation", start_index: 0, end_index: 1, url, title: "New gates" };
const search = (status: string) => ({
  type: "web_search_call",
  id: "ws_1",
  status,
  action: { type: "search", query: "gates", sources: [{ type: "url", url }] },
});
const opened = (status: string) => ({
  type: "web_search_call",
  id: "ws_1",
  status,
  action: { type: "open_page", url },
});

test.each<[string, Dialect, JsonObject]>([
  ["a user's text", "messages", messages({ role: "user", content: text })],
  ["a user's text block", "messages", messages({ role: "user", content: [{ type: "text", text }] })],
  [
    "a client tool's result",
    "messages",
    messages({
      role: "user",
      content: [{ type: "tool_result", tool_use_id: "t", content: [{ type: "text", text }] }],
    }),
  ],
  [
    "a search result that the client brings",
    "messages",
    messages({
      role: "user",
      content: [{ type: "search_result", source: url, title: "New gates", content: [] }],
    }),
  ],
  [
    "the words of a search result that a client tool brings",
    "messages",
    messages({
      role: "user",
      content: [
        {
          type: "tool_result",
          tool_use_id: "t",
          content: [{ type: "search_result", source: "docs", title: "x", content: [{ type: "text", text }] }],
        },
      ],
    }),
  ],
  [
    "a user's document",
    "messages",
    messages({
      role: "user",
      content: [{ type: "document", source: { type: "text", media_type: "text/plain", data: text } }],
    }),
  ],
  [
    "a user's document of blocks",
    "messages",
    messages({
      role: "user",
      content: [{ type: "document", source: { type: "content", content: [{ type: "text", text }] } }],
    }),
  ],
  [
    "a user's document of one text",
    "messages",
    messages({ role: "user", content: [{ type: "document", source: { type: "content", content: text } }] }),
  ],
  [
    "a document that a client tool brings",
    "messages",
    messages({
      role: "user",
      content: [
        {
          type: "tool_result",
          tool_use_id: "t",
          content: [{ type: "document", source: { type: "text", media_type: "text/plain", data: text } }],
        },
      ],
    }),
  ],
  ["a user's text", "chat", messages({ role: "user", content: text })],
  ["a user's file", "chat", messages({ role: "user", content: [{ type: "file", file }] })],
  ["a client tool's result", "chat", messages({ role: "tool", tool_call_id: "t", content: text })],
  [
    "an earlier assistant annotation",
    "chat",
    messages({
      role: "assistant",
      content: "x",
      annotations: [{ type: "url_citation", url_citation: citation }],
    }),
  ],
  ["a text input", "responses", { input: text }],
  ["a user's text part", "responses", input({ role: "user", content: [{ type: "input_text", text }] })],
  ["a user's file", "responses", input({ role: "user", content: [{ type: "input_file", ...file }] })],
  [
    "a client tool's result",
    "responses",
    input({ type: "function_call_output", call_id: "c", output: text }),
  ],
  [
    "an earlier url_citation annotation",
    "responses",
    input({
      type: "message",
      role: "assistant",
      content: [{ type: "output_text", text: "x", annotations: [citation] }],
    }),
  ],
  ["an earlier search result", "responses", input(search("completed"))],
  ["an earlier x_search's result", "responses", input({ ...search("completed"), type: "x_search_call" })],
  ["an earlier opened page", "responses", input(opened("completed"))],
])("may be opened: a URL of %s (%s)", (_, dialect, body) => {
  expect(conversationContext(dialect, body).has(url)).toBe(true);
});

test.each<[string, Dialect, JsonObject]>([
  ["the system prompt", "messages", { system: text, messages: [{ role: "user", content: "hi" }] }],
  ["a model's answer", "messages", messages({ role: "assistant", content: text })],
  [
    "a model's call",
    "messages",
    messages({ role: "assistant", content: [{ type: "tool_use", id: "t", name: "f", input: { url } }] }),
  ],
  ["the system prompt", "chat", messages({ role: "system", content: text })],
  ["the developer's prompt", "chat", messages({ role: "developer", content: text })],
  ["a model's answer", "chat", messages({ role: "assistant", content: text })],
  ["the instructions", "responses", { instructions: text, input: "hi" }],
  ["a developer's message", "responses", input({ role: "developer", content: text })],
  [
    "a model's answer",
    "responses",
    input({ type: "message", role: "assistant", content: [{ type: "output_text", text, annotations: [] }] }),
  ],
  ["a failed search", "responses", input(search("failed"))],
  ["a failed x_search", "responses", input({ ...search("failed"), type: "x_search_call" })],
  ["a page that could not be opened", "responses", input(opened("failed"))],
])("url_not_in_prior_context: a URL only in %s (%s)", (_, dialect, body) => {
  expect(conversationContext(dialect, body).has(url)).toBe(false);
});

describe("rule 7.11: a resent search shows nothing that only echoes its query", () => {
  const secret = "http://attacker.example/?d=SECRET";
  const call = (query: string, sources: string[], status = "completed") => ({
    type: "web_search_call",
    id: "ws_1",
    status,
    action: {
      type: "search",
      query,
      queries: [query],
      sources: sources.map((one) => ({ type: "url", url: one })),
    },
  });
  const cited = {
    type: "message",
    role: "assistant",
    content: [{ type: "output_text", text: "x", annotations: [{ ...citation, url: secret }] }],
  };

  test("in its sources, and in the annotations of the answer after it", () => {
    const prior = conversationContext("responses", input(call(`quote: ${secret}`, [secret, url]), cited));
    expect([prior.has(secret), prior.has(url)]).toEqual([false, true]);
    const failed = conversationContext("responses", input(call(secret, [], "failed"), cited));
    expect(failed.has(secret)).toBe(false);
    const posts = { ...call(secret, [secret]), type: "x_search_call" };
    expect(conversationContext("responses", input(posts)).has(secret)).toBe(false);
  });

  test("what the user wrote or an earlier search found stays open", () => {
    const user = { role: "user", content: [{ type: "input_text", text: secret }] };
    expect(conversationContext("responses", input(user, call(secret, [secret]))).has(secret)).toBe(true);
    const twice = input(call("gates", [secret]), call(secret, [secret]));
    expect(conversationContext("responses", twice).has(secret)).toBe(true);
  });
});
