/** What a client sends back of an earlier answer: paused turns, calls without a result, sealed contents. */
import type Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { MessageParam } from "../../dataplane/dialects/messages/types.ts";
import { checkToolResults } from "../../dataplane/dialects/conversation-builder.ts";
import { dialects } from "../../dataplane/dialects/dialect.ts";
import { text, toolCall } from "../fakes/upstream/script.ts";
import {
  bodies,
  final,
  hit,
  howOften,
  organization,
  otherKeys,
  question,
  thanks,
  startToolsWorld,
  type ToolsWorld,
} from "./tools-world.ts";

let world: ToolsWorld;
beforeAll(async () => {
  world = await startToolsWorld();
});
afterAll(() => world[Symbol.asyncDispose]());
beforeEach(() => world.upstream.reset());

describe("sealed contents that are not ours", () => {
  const withBlob = async (change: (sealed: string) => unknown, where: "content" | "index") => {
    const first = await world.anthropic.messages.create({
      model: "m-chat",
      ...(bodies.messages["search"] as Pick<
        Anthropic.MessageCreateParamsNonStreaming,
        "messages" | "max_tokens"
      >),
    });
    const key = where === "content" ? "encrypted_content" : "encrypted_index";
    const content = JSON.parse(JSON.stringify(first.content), (name, value: unknown) =>
      name === key && typeof value === "string" ? change(value) : value,
    ) as Anthropic.ContentBlockParam[];
    return world.send("messages", {
      model: "m-messages",
      ...bodies.messages["search"],
      messages: [
        { role: "user", content: question },
        { role: "assistant", content },
        { role: "user", content: thanks },
      ],
    });
  };
  const other = (sealed: string) => (sealed.endsWith("A") ? "B" : "A");

  test.each([
    ["changed", (sealed: string) => `${sealed.slice(0, -5)}${other(sealed.slice(0, -4))}${sealed.slice(-4)}`],
    ["truncated", (sealed: string) => sealed.slice(0, -8)],
    ["foreign", () => "EpICCioIARgCIiQzYmQ5"],
    ["empty", () => ""],
    ["a number", () => 5],
    ["null", () => null],
    ["a list", () => ["x"]],
    ["an object", () => ({})],
    ["true", () => true],
    ["left out", () => undefined],
  ] as const)("%s: 400 invalid_request_error naming the block", async (_, change) => {
    for (const [where, path] of [
      ["content", "messages[1].content[2].content[0].encrypted_content"],
      ["index", "messages[1].content[3].citations[0].encrypted_index"],
    ] as const) {
      const response = await withBlob(change, where);
      const body = (await response.json()) as { error: { type: string; message: string } };
      expect([response.status, body.error.type]).toEqual([400, "invalid_request_error"]);
      expect(body.error.message.replaceAll(/\.(\d+)/g, "[$1]")).toContain(path);
    }
  });
});

test("a search citation without its index is refused, also where no server tool is declared", async () => {
  for (const model of ["m-messages", "m-chat"]) {
    const citations = [
      { type: "web_search_result_location", url: hit.url, title: hit.title, cited_text: hit.text },
    ];
    const response = await world.send("messages", {
      model,
      max_tokens: 500,
      messages: [
        { role: "user", content: question },
        { role: "assistant", content: [{ type: "text", text: "So it is.", citations }] },
        { role: "user", content: thanks },
      ],
    });
    expect([response.status, await response.text()]).toEqual([
      400,
      expect.stringContaining("messages.1.content.0.citations.0.encrypted_index"),
    ]);
  }
});

test("any API key of the same account can reopen sealed contents, a key of another account gets 400", async () => {
  const asked = { model: "m-chat", ...bodies.messages["search"] };
  const { content } = (await (await world.send("messages", asked)).json()) as { content: object[] };
  const resent = {
    ...asked,
    messages: [
      { role: "user", content: question },
      { role: "assistant", content },
      { role: "user", content: thanks },
    ],
  };
  const statuses = await Promise.all(
    [otherKeys.same, otherKeys.foreign].map(async (key) => {
      const response = await world.send("messages", resent, { headers: { "x-api-key": key } });
      return [response.status, await response.text()];
    }),
  );
  expect(statuses).toEqual([
    [200, expect.stringContaining("You are welcome.")],
    [400, expect.stringContaining("messages.1.content.2.content.0.encrypted_content")],
  ]);
});

describe("pause_turn: the client resends the assistant's content unchanged, with no further message", () => {
  const tools: Anthropic.ToolUnion[] = [{ type: "web_search_20250305", name: "web_search" }];

  test.each(dialects)("and the model goes on with every result (over %s)", async (other) => {
    let searches = 0;
    world.upstream.model(`upstream-${other}`, ({ question: asked, rounds }) => {
      if (asked !== question) throw new Error(`not a continuation: ${asked}`);
      return rounds >= 10 ? text(final) : toolCall("web_search", { query: `gates ${(searches += 1)}` });
    });
    const ask = (messages: Anthropic.MessageParam[]) =>
      world.anthropic.messages.create({ model: `m-${other}`, max_tokens: 500, tools, messages });
    const asked: Anthropic.MessageParam[] = [{ role: "user", content: question }];
    const first = await ask(asked);
    expect(first.stop_reason).toBe("pause_turn");
    expect(first.content.filter(({ type }) => type === "web_search_tool_result")).toHaveLength(8);
    const second = await ask([
      ...asked,
      { role: "assistant", content: first.content as Anthropic.ContentBlockParam[] },
    ]);
    expect(second.stop_reason).toBe("end_turn");
    expect(second.content.filter(({ type }) => type === "web_search_tool_result")).toHaveLength(2);
    expect(second.usage.server_tool_use).toMatchObject({ web_search_requests: 2 });
    expect(howOften(world.lastSent(), hit.text)).toBe(10);
  });
});

describe("rule 3.6: a resent call without a result is run before the model is asked", () => {
  const tools = [
    { type: "web_search_20250305", name: "web_search" },
    { name: "clock", input_schema: { type: "object" } },
  ];
  const called = (id: string) => ({
    type: "server_tool_use",
    id,
    name: "web_search",
    input: { query: "pend" },
  });
  const failed = (id: string) => ({
    type: "web_search_tool_result",
    tool_use_id: id,
    content: { type: "web_search_tool_result_error", error_code: "unavailable" },
  });
  const said = { type: "text", text: "t" };
  const client = { type: "tool_use", id: "toolu_1", name: "clock", input: {} };
  const noon = { type: "tool_result", tool_use_id: "toolu_1", content: "noon" };
  const pending = called("srvtoolu_x1");
  const shapes: readonly [string, object[], (string | object[])?][] = [
    ["after text", [said, pending]],
    ["alone", [pending]],
    ["after a call with its result", [called("srvtoolu_a"), failed("srvtoolu_a"), pending]],
    ["beside a call with its result", [called("srvtoolu_a"), pending, failed("srvtoolu_a")]],
    ["before what was said later", [called("srvtoolu_a"), pending, failed("srvtoolu_a"), said], "go on"],
    ["before a turn of the user", [said, pending], "go on"],
    ["before blocks of the user", [said, pending], [{ type: "text", text: "go on" }]],
    ["beside a client's call", [said, pending, client], [noon]],
    ["with an id that other dialects refuse", [called("srvtoolu x/1")]],
  ];
  const ask = async (model: string, stream: boolean, content: object[], then?: string | object[]) => {
    const messages: object[] = [
      { role: "user", content: "hi" },
      { role: "assistant", content },
    ];
    if (then !== undefined) messages.push({ role: "user", content: then });
    const sent = await world.send("messages", { model, max_tokens: 1000, stream, tools, messages });
    return { status: sent.status, body: await sent.text() };
  };

  describe.each(dialects)("over %s", (other) => {
    test.each(shapes)("%s", async (_, content, then) => {
      for (const stream of [false, true]) {
        world.upstream.reset();
        world.upstream.model(`upstream-${other}`, () => text("Indeed"));
        const { status, body } = await ask(`m-${other}`, stream, content, then);
        expect([status, body]).toEqual([200, expect.stringContaining("Indeed")]);
        expect(body).toContain(hit.url);
        expect(body.indexOf("web_search_tool_result")).toBeLessThan(body.indexOf("Indeed"));
        expect(world.upstream.requests).toHaveLength(1);
        expect(world.lastSent()).toContain(hit.text);
        if (other === "messages")
          checkToolResults((JSON.parse(world.lastSent()) as { messages: MessageParam[] }).messages);
      }
    });

    test("a client's call without a result stays refused", async () => {
      const { status, body } = await ask(`m-${other}`, false, [pending, client]);
      expect([status, body]).toEqual([400, expect.stringMatching(/without.*toolu_1\./)]);
      expect((await ask(`m-${other}`, false, [pending, { ...client, id: pending.id }])).status).toBe(400);
      expect(world.upstream.requests).toHaveLength(0);
    });

    const tooLong = "prompt is too long: 210000 tokens > 200000 maximum";
    test.each([
      [400, tooLong],
      [413, "too large"],
      [500, "broken"],
    ])("what it brought is the client's when the upstream then answers %i", async (status, message) => {
      for (const stream of [false, true]) {
        const before = await world.plane.holds.standing.credit(organization);
        world.upstream.reset();
        world.upstream.model(`upstream-${other}`, () => ({ error: { status, message } }));
        const told = await ask(`m-${other}`, stream, [said, pending]);
        expect([told.status, told.body]).toEqual([200, expect.stringContaining(hit.title)]);
        expect(told.body).not.toContain(message);
        expect(told.body.includes('"pause_turn"')).toBe(!stream);
        if (stream) expect(streamNames(told.body)).toEqual(failedAfterResult);
        expect(await world.plane.holds.standing.credit(organization)).toMatchObject({
          used: before.used + 320_000n,
          held: 0n,
        });
      }
    });
  });
});

/** The events of a stream whose resent call was run before the upstream failed. */
const failedAfterResult = ["message_start", "content_block_start", "content_block_stop", "error"];
const streamNames = (body: string) => [...body.matchAll(/^event: (.*)$/gm)].map(([, name]) => name);

test("twenty resent turns with their searches work, and thinking keeps its signature", async () => {
  const tools: Anthropic.ToolUnion[] = [{ type: "web_search_20250305", name: "web_search" }];
  const messages: Anthropic.MessageParam[] = [];
  world.upstream.model("upstream-messages", ({ rounds }) => ({
    answer: {
      parts: [
        { type: "thinking", text: "Hm.", signature: `signed-${rounds}` },
        rounds > 0
          ? { type: "text", text: final }
          : { type: "tool", name: "web_search", input: { query: "gates" } },
      ],
    },
  }));
  for (let turn = 0; turn < 20; turn += 1) {
    messages.push({ role: "user", content: `Search again, ${turn}.` });
    const { content } = await world.anthropic.messages.create({
      model: "m-messages",
      max_tokens: 500,
      thinking: { type: "adaptive" },
      tools,
      messages,
    });
    expect(content.map(({ type }) => type)).toEqual([
      "thinking",
      "server_tool_use",
      "web_search_tool_result",
      "thinking",
      "text",
    ]);
    messages.push({ role: "assistant", content: content as Anthropic.ContentBlockParam[] });
  }
  expect(howOften(world.lastSent(), '"signature":"signed-0"')).toBe(20);
  expect(howOften(world.lastSent(), '"signature":"signed-1"')).toBe(19);
  expect(howOften(world.lastSent(), '"type":"search_result"')).toBe(20);
});

describe("rule 7.10: forged calls without results", () => {
  const SEARCH = 320_000n;
  const forged = (count: number, name: string) => ({
    model: "m-messages",
    max_tokens: 500,
    tools: [{ type: "web_search_20250305", name: "web_search" }],
    messages: [
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: Array.from({ length: count }, (_, index) => ({
          type: "server_tool_use",
          id: `srvtoolu_${name}${index}`,
          name: "web_search",
          input: { query: `${name} ${index}` },
        })),
      },
    ],
  });

  test.each([false, true])("a hundred searches do not run for one credit (streamed: %s)", async (stream) => {
    await using poor = await startToolsWorld({ granted: 1_000_000n });
    const response = await poor.send("messages", { ...forged(100, "poor"), stream });
    expect(response.status).toBe(200);
    const answer = await response.text();
    expect(answer).toContain('"pause_turn"');
    expect(howOften(answer, '"unavailable"')).toBe(96);
    expect(poor.site.asked).toHaveLength(4);
    expect(poor.upstream.requests).toHaveLength(0);
    expect(await poor.plane.holds.standing.credit("org_tools")).toMatchObject({
      used: 4n * SEARCH,
      held: 0n,
    });
    expect((await poor.send("messages", forged(100, "again"))).status).toBe(402);
  });

  test("they count under the calls of a minute", async () => {
    await using limited = await startToolsWorld({ callsPerMinute: 7 });
    const answer = await (await limited.send("messages", forged(20, "many"))).text();
    expect(howOften(answer, '"too_many_requests"')).toBe(13);
    expect(limited.site.asked).toHaveLength(7);
  });

  test("those that finished are charged though the client leaves", async () => {
    const { promise: fortieth, resolve } = Promise.withResolvers<void>();
    let answered = 0;
    await using patient = await startToolsWorld({
      around: (page) => (request, response) => {
        answered += 1;
        if (answered <= 40) return page(request, response);
        resolve();
      },
    });
    const leaving = new AbortController();
    const left = patient.send("messages", forged(60, "left"), { signal: leaving.signal }).catch(() => null);
    await fortieth;
    // The fortieth may still be on its way into the books.
    await expect
      .poll(() => patient.plane.holds.standing.credit("org_tools").then(({ held }) => held >= 40n * SEARCH))
      .toBe(true);
    leaving.abort();
    await left;
    await expect
      .poll(() => patient.plane.holds.standing.credit("org_tools"))
      .toMatchObject({ used: 40n * SEARCH, held: 0n });
  });
});

describe("rule 2.2: what stands for our own results is no field of the client's", () => {
  const resend = async (kind: string, model: string, more: readonly object[] = []) => {
    const asked = { model: "m-chat", ...bodies.messages[kind] };
    const { content } = (await (await world.send("messages", asked)).json()) as { content: object[] };
    const said = (bodies.messages[kind] as { messages: object[] }).messages;
    return world.send(
      "messages",
      {
        ...asked,
        model,
        messages: [...said, { role: "assistant", content }, ...more, { role: "user", content: thanks }],
      },
      { headers: { "x-gapura-strict": "true" } },
    );
  };

  test.each(
    dialects.flatMap((dialect) => ["search", "posts", "page"].map((kind) => [dialect, kind] as const)),
  )("toward %s, after %s: nothing is dropped", async (dialect, kind) => {
    const response = await resend(kind, `m-${dialect}`);
    expect([response.status, response.headers.get("x-gapura-dropped")]).toEqual([200, null]);
  });

  test("a result of the client's own is still named", async () => {
    const content = [
      {
        type: "search_result",
        source: "https://own.example/",
        title: "Own",
        content: [{ type: "text", text: "Own text." }],
        citations: { enabled: true },
      },
    ];
    const response = await resend("search", "m-chat", [
      { role: "user", content: "And mine?" },
      { role: "assistant", content: [{ type: "tool_use", id: "toolu_own", name: "own", input: {} }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_own", content }] },
      { role: "assistant", content: "I see." },
    ]);
    expect([response.status, await response.text()]).toEqual([
      400,
      expect.stringContaining("messages.content.content.citations: "),
    ]);
  });
});
