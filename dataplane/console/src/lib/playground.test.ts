import { expect, test } from "vitest";
import { advance, asCurl, nothingYet, readEvents, requestOf, type Question } from "./playground.ts";

const question: Question = {
  dialect: "messages",
  model: "m",
  system: "",
  earlier: [],
  text: "It's 5",
  images: ["data:image/png;base64,AAAA"],
  webSearch: true,
  openPages: true,
  posts: false,
};
const play = (...events: object[]) =>
  events.map((event) => JSON.stringify(event)).reduce(advance, nothingYet);

test("a question is a request of each dialect, with its picture and its tools in that dialect's form", () => {
  expect(requestOf(question)).toMatchObject({
    path: "/v1/messages",
    body: {
      stream: true,
      messages: [{ content: [{ source: { media_type: "image/png", data: "AAAA" } }, { text: "It's 5" }] }],
      tools: [{ name: "web_search" }, { name: "web_fetch" }],
    },
  });
  expect(requestOf({ ...question, dialect: "chat", system: "S" })).toMatchObject({
    path: "/v1/chat/completions",
    body: { web_search_options: {}, messages: [{ role: "system", content: "S" }, { role: "user" }] },
  });
  expect(requestOf({ ...question, dialect: "responses", posts: true })).toMatchObject({
    body: { tools: [{ type: "web_search" }, { type: "x_search" }] },
  });
});

test("a conversation goes on with what was said before, in each dialect's form", () => {
  const turn = { text: "One?", images: ["data:image/gif;base64,BBBB"], answer: "Yes." };
  const later: Question = { ...question, text: "Two?", images: [], earlier: [turn], system: "S" };
  const bodyOf = (dialect: Question["dialect"]) => requestOf({ ...later, dialect }).body;
  const [answer, now] = [
    { role: "assistant", content: "Yes." },
    { role: "user", content: "Two?" },
  ];
  const first = (content: readonly object[]) => ({ role: "user", content });
  expect(bodyOf("messages")).toMatchObject({
    messages: [first([{ source: { data: "BBBB" } }, { text: "One?" }]), answer, now],
  });
  expect(bodyOf("chat")).toMatchObject({
    messages: [{ role: "system" }, first([{ text: "One?" }, { type: "image_url" }]), answer, now],
  });
  expect(bodyOf("responses")).toMatchObject({
    input: [first([{ type: "input_text" }, { type: "input_image" }]), answer, now],
  });
});

test("as code it is the same body, safe in a shell, and names no key", () => {
  const text = asCurl(question, "http://h");
  const [, quoted = ""] = /-d '(.*)'$/s.exec(text) ?? [];
  expect(JSON.parse(quoted.replaceAll("'\\''", "'"))).toEqual(requestOf(question).body);
  expect(text).toContain("$GAPURA_KEY");
});

test("events are cut where they end, whatever a piece ends with", () => {
  expect(readEvents('event: a\r\ndata: {"x":1}\r\n\r\n: ping\n\ndata: {"y"')).toEqual({
    events: ['{"x":1}'],
    rest: 'data: {"y"',
  });
});

test("Messages: text, steps, citations, usage", () => {
  expect(
    play(
      { type: "message_start", message: { usage: { input_tokens: 5, output_tokens: 1 } } },
      { type: "content_block_start", content_block: { type: "server_tool_use", name: "web_search" } },
      { type: "content_block_delta", delta: { type: "input_json_delta", partial_json: '{"query":"tea"}' } },
      {
        type: "content_block_start",
        content_block: { type: "web_search_tool_result", content: { error_code: "unavailable" } },
      },
      { type: "content_block_delta", delta: { type: "text_delta", text: "Hi" } },
      {
        type: "content_block_delta",
        delta: { type: "citations_delta", citation: { url: "https://a.test", title: "A" } },
      },
      { type: "message_delta", usage: { output_tokens: 9 } },
    ),
  ).toEqual({
    text: "Hi",
    steps: ["web_search: tea", "unavailable"],
    citations: [{ url: "https://a.test", title: "A" }],
    inputTokens: 5,
    outputTokens: 9,
    error: null,
  });
});

test("Chat and Responses: text, steps, citations, usage", () => {
  const citation = { url: "https://a.test", title: "A" };
  expect(
    play(
      { choices: [{ delta: { content: "Hi" } }] },
      { choices: [{ delta: { annotations: [{ url_citation: citation }] } }] },
      { choices: [], usage: { prompt_tokens: 3, completion_tokens: 4 } },
    ),
  ).toMatchObject({ text: "Hi", citations: [citation], inputTokens: 3, outputTokens: 4 });
  expect(
    play(
      { type: "response.output_text.delta", delta: "Hi" },
      {
        type: "response.output_item.done",
        item: { type: "web_search_call", status: "failed", action: { type: "search", query: "tea" } },
      },
      { type: "response.output_text.annotation.added", annotation: citation },
      { type: "response.completed", response: { usage: { input_tokens: 3, output_tokens: 4 } } },
    ),
  ).toMatchObject({
    text: "Hi",
    steps: ["web_search: tea (failed)"],
    citations: [citation],
    outputTokens: 4,
  });
});

test.for([
  { type: "error", error: { message: "Gone." } },
  { error: { message: "Gone." } },
  { type: "error", message: "Gone." },
  { type: "response.failed", response: { error: { message: "Gone." } } },
])("an error in the middle keeps what came before it: %j", (event) => {
  expect(play({ choices: [{ delta: { content: "Half" } }] }, event)).toMatchObject({
    text: "Half",
    error: "Gone.",
  });
});

test("what is no JSON changes nothing", () => {
  expect(advance(nothingYet, "[DONE]")).toBe(nothingYet);
});
