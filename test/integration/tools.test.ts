/** Server tools over real HTTP, driven by the official SDKs: every dialect over an upstream of every dialect. */
import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { slow } from "../fakes/engines/engines.ts";
import { redirect } from "../fakes/pages/site.ts";
import { chatFaults } from "../grammar/chat.ts";
import { messagesFaults } from "../grammar/messages.ts";
import { responsesFaults } from "../grammar/responses.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { text, toolCall, type Step } from "../fakes/upstream/script.ts";
import {
  bodies,
  final,
  hit,
  howOften,
  question,
  thanks,
  startToolsWorld,
  type ToolsWorld,
} from "./tools-world.ts";

let world: ToolsWorld;
beforeAll(async () => {
  world = await startToolsWorld({ pages: { "/moved": redirect("/page") } });
});
afterAll(() => world[Symbol.asyncDispose]());
beforeEach(() => world.upstream.reset());

/** What the link of `final` spans. */
const link = /\[the report\]\([^)]*\)/.exec(final)?.[0] ?? "";

describe.each(dialects)("over an upstream of the %s dialect", (other) => {
  const model = `m-${other}`;
  describe.each(["whole", "streamed"] as const)("%s", (how) => {
    test("Messages: search, answer, resend, continue", async () => {
      const tools: Anthropic.ToolUnion[] = [{ type: "web_search_20250305", name: "web_search" }];
      const ask = (messages: Anthropic.MessageParam[]) => {
        const body = { model, max_tokens: 500, tools, messages };
        return how === "whole"
          ? world.anthropic.messages.create(body)
          : world.anthropic.messages.stream(body).finalMessage();
      };
      const asked: Anthropic.MessageParam[] = [{ role: "user", content: question }];
      const first = await ask(asked);
      expect(first.content.map(({ type }) => type)).toEqual([
        "text",
        "server_tool_use",
        "web_search_tool_result",
        "text",
      ]);
      expect(first.stop_reason).toBe("end_turn");
      expect(first.usage.server_tool_use).toMatchObject({ web_search_requests: 1, web_fetch_requests: 0 });
      const result = first.content[2];
      expect(result).toMatchObject({
        content: [{ type: "web_search_result", url: hit.url, title: hit.title }],
      });
      if (other !== "messages") {
        expect(first.content[3]).toMatchObject({
          citations: [{ type: "web_search_result_location", url: hit.url, cited_text: hit.text }],
        });
      }

      const conversation: Anthropic.MessageParam[] = [
        ...asked,
        { role: "assistant", content: first.content as Anthropic.ContentBlockParam[] },
        { role: "user", content: thanks },
      ];
      const second = await ask(conversation);
      expect(second.content).toMatchObject([{ type: "text", text: "You are welcome." }]);
      expect(world.lastSent()).toContain(hit.text);
      expect(world.lastSent()).not.toMatch(/"encrypted_|server_tool_use|web_search_tool_result/);
    });

    test("Chat: search, answer, resend, continue", async () => {
      const ask = async (messages: OpenAI.ChatCompletionMessageParam[]) => {
        const body = { model, messages, web_search_options: {} };
        const completion =
          how === "whole"
            ? await world.openai.chat.completions.create(body)
            : await world.openai.chat.completions.stream(body).finalChatCompletion();
        const choice = completion.choices[0];
        if (choice === undefined) throw new Error("no choice");
        return choice;
      };
      const asked: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: question }];
      const first = await ask(asked);
      const said = `Let me look.\n\n${final}`;
      expect(first).toMatchObject({ finish_reason: "stop", message: { content: said } });
      // The SDK's accumulator keeps what a delta brings.
      expect(first.message.annotations).toEqual([
        {
          type: "url_citation",
          url_citation: {
            start_index: said.indexOf(link),
            end_index: said.indexOf(link) + link.length,
            url: hit.url,
            title: hit.title,
          },
        },
      ]);
      const second = await ask([...asked, first.message, { role: "user", content: thanks }]);
      expect(second.message.content).toBe("You are welcome.");
      expect(howOften(world.lastSent(), "[svc:servertools]")).toBe(1);
    });

    test("Responses: search, answer, resend, continue", async () => {
      const ask = (input: OpenAI.Responses.ResponseInput) => {
        const body = { model, input, tools: [{ type: "web_search" as const }] };
        return how === "whole"
          ? world.openai.responses.create(body)
          : world.openai.responses.stream(body).finalResponse();
      };
      const asked: OpenAI.Responses.ResponseInput = [{ role: "user", content: question }];
      const first = await ask(asked);
      expect(first.status).toBe("completed");
      expect(first.output).toMatchObject([
        { type: "message", content: [{ text: "Let me look." }] },
        {
          type: "web_search_call",
          status: "completed",
          action: { type: "search", query: question, sources: [{ type: "url", url: hit.url }] },
        },
        {
          type: "message",
          content: [
            {
              text: final,
              annotations: [
                { type: "url_citation", start_index: final.indexOf(link), url: hit.url, title: hit.title },
              ],
            },
          ],
        },
      ]);
      const second = await ask([
        ...asked,
        ...(first.output as OpenAI.Responses.ResponseInputItem[]),
        { role: "user", content: thanks },
      ]);
      expect(second.output_text).toBe("You are welcome.");
      expect(world.lastSent()).not.toContain("web_search_call");
      expect(howOften(world.lastSent(), "[svc:servertools]")).toBe(1);
    });
  });
});

const grammar: Record<Dialect, (stream: string) => string[]> = {
  messages: (stream) => messagesFaults(stream),
  chat: (stream) => chatFaults(stream),
  responses: (stream) => responsesFaults(stream),
};

describe.each(dialects)("every stream of the %s dialect keeps its grammar", (dialect) => {
  const cases = Object.keys(bodies[dialect]).flatMap((tool) => dialects.map((other) => ({ tool, other })));
  test.each(cases)("$tool over $other", async ({ tool, other }) => {
    const response = await world.send(dialect, {
      model: `m-${other}`,
      stream: true,
      ...bodies[dialect][tool],
    });
    const stream = await response.text();
    expect([response.status, grammar[dialect](stream)]).toEqual([200, []]);
    expect(stream).toContain("They");
    expect(world.upstream.requests).toHaveLength(2);
    if (tool === "page") expect(world.upstream.requests[1]?.text).toContain("About gates.");
  });
});

describe("the AI SDK's provider-executed web search", () => {
  const models = () => {
    const options = { apiKey: sampleKeys.inference, baseURL: `${world.server.url}/v1` };
    return { anthropic: createAnthropic(options), openai: createOpenAI(options) };
  };

  test.each(dialects)("anthropic over %s", async (other) => {
    const { anthropic } = models();
    const request = {
      model: anthropic(`m-${other}`),
      prompt: question,
      tools: { web_search: anthropic.tools.webSearch_20250305({ maxUses: 3 }) },
    };
    const whole = await generateText(request);
    expect(whole.text).toContain(final);
    expect(whole.finishReason).toBe("stop");
    expect(whole.toolResults).toMatchObject([{ toolName: "web_search", providerExecuted: true }]);
    expect(whole.sources).toContainEqual(expect.objectContaining({ url: hit.url }));
    const streamed = streamText(request);
    expect(await streamed.text).toContain(final);
    expect(await streamed.toolResults).toMatchObject([{ toolName: "web_search", providerExecuted: true }]);
  });

  test.each(dialects)("openai over %s", async (other) => {
    const { openai } = models();
    for (const tool of ["webSearch", "webSearchPreview"] as const) {
      const request = {
        model: openai.responses(`m-${other}`),
        prompt: question,
        tools: { [tool === "webSearch" ? "web_search" : "web_search_preview"]: openai.tools[tool]({}) },
      };
      const whole = await generateText(request);
      expect(whole.text).toContain(final);
      // The SDK tells of each address once, by the search's sources, which have no titles.
      expect(whole.sources).toContainEqual(expect.objectContaining({ url: hit.url }));
      const streamed = streamText(request);
      expect(await streamed.text).toContain(final);
      expect(await streamed.sources).toContainEqual(expect.objectContaining({ url: hit.url }));
    }
  });
});

test("a page that is not to be cited stands beside the client's cited document, which upstreams take all or none of", async () => {
  const url = `${world.pages}/page`;
  world.upstream.next(toolCall("web_fetch", { url }), text("done"));
  await world.anthropic.messages.create({
    model: "m-messages",
    max_tokens: 500,
    tools: [{ type: "web_fetch_20250910", name: "web_fetch" }],
    messages: [
      {
        role: "user",
        content: [
          {
            type: "document",
            source: { type: "text", media_type: "text/plain", data: "Own words." },
            citations: { enabled: true },
          },
          { type: "text", text: `Compare it with ${url}` },
        ],
      },
    ],
  });
  expect(world.lastSent()).toContain("About gates.");
  expect(world.lastSent()).not.toContain('"enabled":false');
});

describe("a page behind a redirect is cited by the address that the model asked for", () => {
  const where = { start_index: 4, end_index: 0, title: "A page" };
  test.each(["whole", "streamed"] as const)("Responses and Chat, %s", async (how) => {
    const [asked, url] = [`${world.pages}/moved`, `${world.pages}/page`];
    const said = `See [it](${asked}).`;
    const citation = { ...where, end_index: said.length - 1, url };
    const cited = { type: "url_citation", ...citation };
    const script = [toolCall("web_fetch", { url: asked }), text(said)];
    const input = `Open ${asked}`;
    world.upstream.next(...script);
    const body = { model: "m-messages", input, tools: [{ type: "web_search" as const }] };
    const response = await (how === "whole"
      ? world.openai.responses.create(body)
      : world.openai.responses.stream(body).finalResponse());
    expect(response.output.at(-1)).toMatchObject({ content: [{ text: said, annotations: [cited] }] });
    world.upstream.next(...script);
    const chat = {
      model: "m-chat",
      web_search_options: {},
      messages: [{ role: "user" as const, content: input }],
    };
    const completion = await (how === "whole"
      ? world.openai.chat.completions.create(chat)
      : world.openai.chat.completions.stream(chat).finalChatCompletion());
    expect(completion.choices[0]?.message.annotations).toEqual([
      { type: "url_citation", url_citation: citation },
    ]);
  });
});

describe("cited_text of a model's own citation has at most 150 characters", () => {
  const cited = "é".repeat(300);
  const kinds: Record<string, object> = {
    char_location: { start_char_index: 0, end_char_index: 300 },
    page_location: { start_page_number: 1, end_page_number: 2 },
    content_block_location: { start_block_index: 0, end_block_index: 1 },
    search_result_location: {
      source: "mine",
      title: null,
      search_result_index: 0,
      start_block_index: 0,
      end_block_index: 1,
    },
  };
  const cases = Object.keys(kinds).flatMap((type) => [false, true].map((stream) => ({ type, stream })));
  test.each(cases)("$type, streamed: $stream", async ({ type, stream }) => {
    const citation = { type, cited_text: cited, document_index: 0, document_title: "A page", ...kinds[type] };
    world.upstream.next(toolCall("web_fetch", { url: `${world.pages}/page` }), {
      answer: { parts: [{ type: "text", text: "So it says.", citations: [citation] }] },
    });
    const response = await world.send("messages", {
      model: "m-messages",
      stream,
      max_tokens: 500,
      messages: [{ role: "user", content: "Open {page}" }],
      tools: [{ type: "web_fetch_20250910", name: "web_fetch", citations: { enabled: true } }],
    });
    const body = await response.text();
    const shown = Array.from(body.matchAll(/"cited_text":"(é*)"/g), ([, of = ""]) => of.length);
    expect([response.status, shown]).toEqual([200, [150]]);
    expect(body).toContain(type);
  });
});

describe("a model's citations into documents appear only where documents are to be cited", () => {
  const enabled = { citations: { enabled: true } };
  const own = (settings: object) => ({
    type: "document",
    source: { type: "text", media_type: "text/plain", data: "Mine." },
    ...settings,
  });
  test.each<[string, object, object[], boolean, string?]>([
    ["nobody asked", {}, [], false],
    ["citations of web_fetch are off", { citations: { enabled: false } }, [], false],
    ["the client's own document is not to be cited", {}, [own({})], false],
    ["the client's own document is", {}, [own(enabled)], true],
    ["citations of web_fetch are on", enabled, [], true],
    ["the model does not make them", enabled, [], false, "m-uncited"],
  ])("%s", async (_, settings, documents, shown, model = "m-messages") => {
    const citation = {
      type: "char_location",
      cited_text: "So it says",
      document_index: 0,
      document_title: null,
      start_char_index: 0,
      end_char_index: 10,
    };
    for (const stream of [false, true]) {
      world.upstream.next(toolCall("web_fetch", { url: `${world.pages}/page` }), {
        answer: { parts: [{ type: "text", text: "Said.", citations: [citation] }] },
      });
      const response = await world.send("messages", {
        model,
        stream,
        max_tokens: 500,
        messages: [{ role: "user", content: [...documents, { type: "text", text: "Open {page}" }] }],
        tools: [{ type: "web_fetch_20250910", name: "web_fetch", ...settings }],
      });
      const body = await response.text();
      expect([response.status, body.includes("Said."), body.includes("char_location")]).toEqual([
        200,
        true,
        shown,
      ]);
    }
  });
});

describe("a model's own citation of a search result is told as ours, and may be resent", () => {
  const place = { search_result_index: 0, start_block_index: 0, end_block_index: 1 };
  const own = { type: "search_result_location", ...place };
  const provider = { type: "web_search_result_location", encrypted_index: "theirs" };
  test.each<[string, object | null, object | null]>([
    [
      "whole",
      { ...own, source: hit.url, title: "Told", cited_text: "snip" },
      { title: "Told", cited_text: "snip" },
    ],
    ["without text and title", { ...own, source: hit.url }, { title: hit.title, cited_text: hit.text }],
    [
      "in a provider's form",
      { ...provider, url: hit.url, title: "Told", cited_text: "s" },
      { title: "Told", cited_text: "s" },
    ],
    [
      "of nothing that was found",
      { ...provider, url: "https://b.example/", title: "B", cited_text: "b" },
      null,
    ],
    ["that is none", null, null],
  ])("%s", async (_, citation, shown) => {
    const ask = (messages: object[], stream: boolean) =>
      world.send("messages", {
        model: "m-messages",
        stream,
        max_tokens: 500,
        messages,
        tools: [{ type: "web_search_20250305", name: "web_search" }],
      });
    const asked = { role: "user", content: "What is new?" };
    const expected = shown === null ? [] : [{ type: "web_search_result_location", url: hit.url, ...shown }];
    const script = [
      toolCall("web_search", { query: "gates" }),
      { answer: { parts: [{ type: "text", text: "Said.", citations: [citation as object] }] } },
    ] as const;
    world.upstream.next(...script);
    const whole = (await (await ask([asked], false)).json()) as { content: { citations?: object[] }[] };
    expect(whole.content.at(-1)).toMatchObject({ type: "text", text: "Said.", citations: expected });
    world.upstream.next(...script);
    const streamed = await (await ask([asked], true)).text();
    const cited = Array.from(
      streamed.matchAll(/^data: (.*"citations_delta".*)$/gm),
      ([, data = ""]) => JSON.parse(data) as { delta: { citation: object } },
    );
    expect(cited.map(({ delta }) => delta.citation)).toMatchObject(expected);
    expect(streamed).toContain("message_stop");
    const turns = [asked, { role: "assistant", content: whole.content }, { role: "user", content: thanks }];
    expect((await ask(turns, false)).status).toBe(200);
  });
});

describe("an upstream that fails after the first iteration is a 502 upstream_error, whatever it says", () => {
  const overloaded = JSON.stringify({ error: { message: "Busy.", type: "server_error", code: "503" } });
  const failures: Record<string, Step> = {
    "400": { error: { status: 400 } },
    "429": { error: { status: 429 } },
    "500": { error: { status: 500 } },
    "503": { error: { status: 503 } },
    "529": { error: { status: 529 } },
    "504": { error: { status: 504 } },
    "an error with status 200": { raw: { body: overloaded } },
  };
  const cases = Object.keys(failures).flatMap((name) =>
    (["responses", "chat"] as const).map((dialect) => ({ name, dialect })),
  );
  test.each(cases)("$name to $dialect", async ({ name, dialect }) => {
    const asked =
      dialect === "chat"
        ? { messages: [{ role: "user", content: "What is new?" }], web_search_options: {} }
        : { input: "What is new?", tools: [{ type: "web_search" }] };
    for (const model of ["m-messages", "m-chat", "m-responses"]) {
      const failing = () =>
        world.upstream.next(
          toolCall("web_search", { query: "gates" }),
          ...Array.from({ length: 2 }, () => failures[name] ?? text("")),
        );
      failing();
      const whole = await world.send(dialect, { ...asked, model });
      const error = { type: "server_error", code: "upstream_error" };
      expect(await whole.json()).toMatchObject({ error });
      expect([whole.status, whole.headers.get("x-should-retry")]).toEqual([502, "false"]);
      world.upstream.reset();
      failing();
      const streamed = await (await world.send(dialect, { ...asked, model, stream: true })).text();
      const last = streamed.trimEnd().split("data: ").at(-1) ?? "";
      expect(JSON.parse(last)).toMatchObject({ error });
      world.upstream.reset();
    }
  });
});

describe("what may be opened", () => {
  const tools: Anthropic.ToolUnion[] = [{ type: "web_fetch_20250910", name: "web_fetch" }];
  const ask = (messages: Anthropic.MessageParam[]) =>
    world.anthropic.messages.create({ model: "m-chat", max_tokens: 500, tools, messages });
  const openLinked = () => [toolCall("web_fetch", { url: `${world.pages}/linked` }), text("done")];
  const resultOf = (message: Anthropic.Message) =>
    message.content.find(({ type }) => type === "web_fetch_tool_result");

  test("a link of a page that an earlier answer opened", async () => {
    const asked: Anthropic.MessageParam[] = [{ role: "user", content: `Open ${world.pages}/page` }];
    const first = await ask(asked);
    expect(resultOf(first)).toMatchObject({ content: { type: "web_fetch_result" } });
    world.upstream.next(...openLinked());
    const second = await ask([
      ...asked,
      { role: "assistant", content: first.content as Anthropic.ContentBlockParam[] },
      { role: "user", content: thanks },
    ]);
    expect(resultOf(second)).toMatchObject({ content: { type: "web_fetch_result" } });
  });

  test("not a link that the conversation never held: url_not_in_prior_context", async () => {
    world.upstream.next(...openLinked());
    expect(resultOf(await ask([{ role: "user", content: thanks }]))).toMatchObject({
      content: { type: "web_fetch_tool_result_error", error_code: "url_not_in_prior_context" },
    });
  });

  test.each(dialects)("what an earlier search or x_search found, in Responses over %s", async (other) => {
    for (const type of ["web_search", "x_search"] as const) {
      const url = `${world.pages}/linked?by=${type}`;
      world.upstream.next(toolCall("web_fetch", { url }), text("done"));
      const response = await world.send("responses", {
        model: `m-${other}`,
        tools: [{ type: "web_search" }, { type: "x_search" }],
        input: [
          { role: "user", content: question },
          {
            type: `${type}_call`,
            id: "xs_1",
            status: "completed",
            action: { type: "search", query: "q", queries: ["q"], sources: [{ type: "url", url }] },
          },
          { role: "user", content: thanks },
        ],
      });
      expect(await response.json()).toMatchObject({
        output: [{ status: "completed", action: { type: "open_page", url } }, { type: "message" }],
      });
    }
  });

  test("filters.allowed_domains also applies to opened pages, in Responses", async () => {
    const response = await world.openai.responses.create({
      model: "m-messages",
      input: `Open ${world.pages}/page`,
      tools: [{ type: "web_search", filters: { allowed_domains: ["gates.example"] } }],
    });
    expect(response.output).toContainEqual(
      expect.objectContaining({
        type: "web_search_call",
        status: "failed",
        action: { type: "open_page", url: `${world.pages}/page` },
      }),
    );
    expect(world.lastSent()).toContain("url_not_allowed");
  });
});

describe("rule 2.2 on the tool path", () => {
  const strict = { "x-gapura-strict": "true" };
  const lossy = { ...bodies.chat["search"], model: "m-messages", seed: 7 };

  test.each([false, true])("what is lost is named in x-gapura-dropped (streamed: %s)", async (stream) => {
    const response = await world.send("chat", { ...lossy, stream });
    expect(response.headers.get("x-gapura-dropped")).toContain("seed");
    await response.text();
  });

  test("under strict it is refused before any call, and free", async () => {
    const before = await world.plane.holds.standing.credit("org_tools");
    const response = await world.send("chat", lossy, { headers: strict });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain("seed");
    expect(world.upstream.requests).toHaveLength(0);
    expect(await world.plane.holds.standing.credit("org_tools")).toEqual(before);
  });
});

test("an upstream's 400 to the first iteration names no path of another dialect", async () => {
  const { server, upstream } = world;
  upstream.next({ error: { status: 400, message: "messages.0.content.1: text is too long" } });
  const answer = await server.fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m-messages", ...bodies.chat["search"] }),
  });
  expect(answer.status).toBe(400);
  expect(await answer.json()).toMatchObject({ error: { message: "text is too long", param: null } });
});

test("rule 3.17: a tool cancelled by a disconnect is free, the finished iteration is not", async () => {
  await using slowWorld = await startToolsWorld({ around: (page) => slow(page, 30_000) });
  const { plane, server, site, upstream } = slowWorld;
  upstream.model("upstream-chat", {
    answer: {
      parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }],
      usage: { input: 100, output: 10 },
    },
  });
  const leaving = new AbortController();
  const answer = server.fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m-chat", stream: true, ...bodies.chat["search"] }),
    signal: leaving.signal,
  });
  answer.then((response) => response.text()).catch(() => undefined);
  await expect.poll(() => site.asked.length).toBe(1);
  leaving.abort();
  // 100 × 96 + 10 × 480 micro-credits, and no search.
  await expect
    .poll(async () => await plane.holds.standing.credit("org_tools"))
    .toMatchObject({ held: 0n, used: 14_400n });
});
