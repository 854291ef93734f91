/** Rule 7.11: a URL that a model wrote into its own query is opened by nobody, however the engine echoes it. */
import type Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { dialects } from "../../dataplane/dialects/dialect.ts";
import { answer, type Page } from "../fakes/pages/site.ts";
import { text, toolCall } from "../fakes/upstream/script.ts";
import { startToolsWorld, thanks, type ToolsWorld } from "./tools-world.ts";

/** An engine whose one result is the URL that it was asked for, without scheme too, and quotes the query. */
const echoing: Page = (request, response) => {
  const query = new URL(request.url ?? "/", "http://engine.example").searchParams.get("q") ?? "";
  const named = /(?:https?:\/\/)?([\w.]+:\d+\/\S+)/.exec(query)?.[1];
  const url = named === undefined ? "http://gates.example/new" : `http://${named}`;
  const results = [{ url, title: "A result", content: `You asked: ${query}`, engine: "x" }];
  const page = answer(JSON.stringify({ results }), { "content-type": "application/json" });
  return page(request, response);
};

let world: ToolsWorld;
beforeAll(async () => {
  world = await startToolsWorld({ pages: { "/search": echoing } });
});
afterAll(() => world[Symbol.asyncDispose]());
beforeEach(() => world.upstream.reset());

const tools: Anthropic.ToolUnion[] = [
  { type: "web_search_20250305", name: "web_search" },
  { type: "web_fetch_20250910", name: "web_fetch" },
];
const ask = (messages: Anthropic.MessageParam[]) =>
  world.anthropic.messages.create({ model: "m-chat", max_tokens: 500, tools, messages });
const fetched = (message: Anthropic.Message) =>
  message.content
    .filter(({ type }) => type === "web_fetch_tool_result")
    .map((block) => JSON.stringify(block));
const visits = (mark: string) => world.site.paths.filter((path) => path.includes(mark));

test("in the same request, with scheme and without, and when the conversation is resent", async () => {
  for (const spelled of ["url", "bare"] as const) {
    const mark = `SECRET-${spelled}`;
    const url = `${world.pages}/linked?d=${mark}`;
    const query = `quote verbatim: ${spelled === "url" ? url : url.replace("http://", "")}`;
    world.upstream.next(toolCall("web_search", { query }), toolCall("web_fetch", { url }), text("done"));
    const asked: Anthropic.MessageParam[] = [{ role: "user", content: "Read the news" }];
    const first = await ask(asked);
    expect(fetched(first)).toEqual([expect.stringContaining("url_not_in_prior_context")]);
    world.upstream.next(toolCall("web_fetch", { url }), text("done"));
    const second = await ask([
      ...asked,
      { role: "assistant", content: first.content as Anthropic.ContentBlockParam[] },
      { role: "user", content: thanks },
    ]);
    expect(fetched(second)).toEqual([expect.stringContaining("url_not_in_prior_context")]);
    expect(visits(`/linked?d=${mark}`)).toEqual([]);
  }
});

test("the same URL is opened when the user wrote it", async () => {
  const url = `${world.pages}/linked?d=said`;
  world.upstream.next(toolCall("web_search", { query: url }), toolCall("web_fetch", { url }), text("done"));
  expect(fetched(await ask([{ role: "user", content: `Read ${url}` }]))).toEqual([
    expect.stringContaining("web_fetch_result"),
  ]);
  expect(visits("/linked?d=said")).toHaveLength(1);
});

test.each(dialects)(
  "in Chat, whose resent conversations show annotations but no queries: %s",
  async (other) => {
    const url = `${world.pages}/linked?d=SECRET-${other}-chat`;
    world.upstream.next(toolCall("web_search", { query: `quote: ${url}` }), text(`See [this](${url}).`));
    const first = await world.openai.chat.completions.create({
      model: `m-${other}`,
      messages: [{ role: "user", content: "Read the news" }],
      web_search_options: {},
    });
    const said = first.choices[0]?.message;
    expect(said?.content).toContain(url);
    expect(JSON.stringify(said?.annotations)).not.toContain("SECRET");
  },
);
