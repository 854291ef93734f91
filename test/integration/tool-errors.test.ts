/**
 * Every code of service.md "Errors of tools", made by its own cause over HTTP: a Messages
 * client reads the code, a Responses client a failed item without it, a Chat client nothing; the model is told the
 * code and goes on; the call is not billed (service.md "Prices and billing rules" 3; rules 3.10, 3.17).
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { metrics } from "../../dataplane/telemetry/metrics.ts";
import { broken, slow } from "../fakes/engines/engines.ts";
import { answer, type Page } from "../fakes/pages/site.ts";
import { text, type Step } from "../fakes/upstream/script.ts";
import { startToolsWorld, type ToolsWorld } from "./tools-world.ts";

/** What engines and pages do instead of answering; null: they answer. */
let fault: Page | null = null;
let world: ToolsWorld;
beforeAll(async () => {
  world = await startToolsWorld({
    around: (page) => (request, response) => (fault ?? page)(request, response),
    policy: { callsPerMinute: 60 },
    pages: {
      "/robots.txt": answer("User-agent: *\nDisallow: /private", { "content-type": "text/plain" }),
      "/private": answer("<p>Secret</p>"),
      "/image": answer("PNG", { "content-type": "image/png" }),
      "/pdf": answer("%PDF-1.7", { "content-type": "application/pdf" }),
    },
  });
});
afterAll(() => world[Symbol.asyncDispose]());
beforeEach(() => {
  world.upstream.reset();
  fault = null;
});

type Tool = "web_search" | "web_fetch" | "x_search";

interface Case {
  readonly code: string;
  readonly tool: Tool;
  /** What the model writes as the tool's input; a function gets the pages' address. */
  readonly input: object | string | ((pages: string) => object);
  /** The user's own words hold this input's URL. */
  readonly shown?: boolean;
  readonly declaration?: object;
  readonly fault?: Page;
}

const cases: readonly Case[] = [
  ...(["web_search", "x_search"] as const).flatMap((tool): Case[] => [
    { code: "invalid_tool_input", tool, input: {} },
    { code: "invalid_tool_input", tool, input: { query: 7 } },
    { code: "invalid_tool_input", tool, input: { query: " " } },
    { code: "invalid_tool_input", tool, input: "[1]" },
    { code: "invalid_tool_input", tool, input: '{"query": "ga' },
    { code: "query_too_long", tool, input: { query: "g".repeat(401) } },
    { code: "unavailable", tool, input: { query: "gates down" }, fault: broken.failing },
    { code: "unavailable", tool, input: { query: "gates html" }, fault: broken.html },
  ]),
  { code: "invalid_tool_input", tool: "web_fetch", input: { link: "x" } },
  {
    code: "url_too_long",
    tool: "web_fetch",
    input: (pages) => ({ url: `${pages}/${"a".repeat(250)}` }),
    shown: true,
  },
  {
    code: "url_not_allowed",
    tool: "web_fetch",
    input: (pages) => ({ url: `${pages}/page` }),
    shown: true,
    declaration: { allowed_domains: ["gates.example"] },
  },
  {
    code: "url_not_allowed",
    tool: "web_fetch",
    input: (pages) => ({ url: `${pages}/page` }),
    shown: true,
    declaration: { blocked_domains: ["127.0.0.1"] },
  },
  { code: "url_not_in_prior_context", tool: "web_fetch", input: (pages) => ({ url: `${pages}/page` }) },
  {
    code: "url_not_accessible",
    tool: "web_fetch",
    input: (pages) => ({ url: `${pages}/absent` }),
    shown: true,
  },
  {
    code: "url_not_accessible",
    tool: "web_fetch",
    input: (pages) => ({ url: `${pages}/private` }),
    shown: true,
  },
  {
    code: "url_not_accessible",
    tool: "web_fetch",
    input: { url: "http://169.254.169.254/latest/meta-data" },
    shown: true,
  },
  {
    code: "unsupported_content_type",
    tool: "web_fetch",
    input: (pages) => ({ url: `${pages}/image` }),
    shown: true,
  },
  {
    code: "unsupported_content_type",
    tool: "web_fetch",
    input: (pages) => ({ url: `${pages}/pdf` }),
    shown: true,
  },
];

const versions: Record<Tool, string> = {
  web_search: "web_search_20260318",
  web_fetch: "web_fetch_20260318",
  x_search: "x_search_20261005",
};

function bodyOf(dialect: Dialect, tool: Tool, question: string, declaration: object): object {
  switch (dialect) {
    case "messages":
      return {
        max_tokens: 500,
        messages: [{ role: "user", content: question }],
        tools: [{ type: versions[tool], name: tool, ...declaration }],
      };
    case "chat":
      return { messages: [{ role: "user", content: question }], web_search_options: {} };
    case "responses": {
      const filters = Object.keys(declaration).length === 0 ? {} : { filters: declaration };
      return { input: question, tools: [{ type: tool === "x_search" ? tool : "web_search", ...filters }] };
    }
  }
}

const calling = (name: Tool, input: object | string): Step => ({
  answer: { parts: [{ type: "tool", name, input }], usage: { input: 100, output: 10 } },
});
const going: Step = {
  answer: { parts: [{ type: "text", text: "I go on." }], usage: { input: 100, output: 10 } },
};

async function post(dialect: Dialect, body: object, on: ToolsWorld = world) {
  const response = await on.send(dialect, { model: "m-messages", ...body });
  expect(response.status).toBe(200);
  return (await response.json()) as {
    content?: { type: string; content?: unknown }[];
    output?: { type: string; status?: string }[];
    choices?: { message: { content: string; annotations: unknown[] } }[];
    usage: { server_tool_use?: object };
  };
}

const used = async (on: ToolsWorld) => (await on.plane.holds.standing.credit("org_tools"))?.used ?? 0n;
const counted = async (tool: Tool, outcome: string) =>
  (await metrics.toolCalls.get()).values.find(
    ({ labels }) => labels.tool === tool && labels.outcome === outcome,
  )?.value ?? 0;

/** Both iterations at the sample prices, and no tool. */
const TOKENS_COST = BigInt(2 * (100 * 96 + 10 * 480));

describe.each(cases)("$tool: $code ($input)", (told) => {
  const seenBy = dialects.filter((dialect) => {
    if (dialect === "chat") return told.tool !== "x_search" && told.declaration === undefined;
    return true;
  });
  test.each(seenBy)("in %s", async (dialect) => {
    const { code, tool, declaration = {} } = told;
    fault = told.fault ?? null;
    const input = typeof told.input === "function" ? told.input(world.pages) : told.input;
    const question = told.shown === true ? `Look at ${JSON.stringify(input)}` : "Look it up.";
    world.upstream.next(calling(tool, input), going);
    const before = { used: await used(world), counted: await counted(tool, code) };
    const body = await post(dialect, bodyOf(dialect, tool, question, declaration));

    expect(world.upstream.requests[1]?.text).toMatch(new RegExp(`${code}: [A-Z][^"]+\\.`));
    if (dialect === "messages") {
      const kind = tool === "web_fetch" ? "web_fetch_tool_result" : "web_search_tool_result";
      expect(body.content?.find(({ type }) => type === kind)?.content).toEqual({
        type: `${kind}_error`,
        error_code: code,
      });
      expect(body.content?.at(-1)).toMatchObject({ type: "text", text: "I go on." });
      expect(body.usage.server_tool_use).toEqual({
        web_search_requests: 0,
        web_fetch_requests: 0,
        x_search_requests: 0,
      });
    } else if (dialect === "responses") {
      expect(body.output).toMatchObject([{ status: "failed" }, { type: "message" }]);
      expect(JSON.stringify(body.output)).not.toContain(code);
    } else {
      expect(body.choices?.[0]?.message).toMatchObject({ content: "I go on.", annotations: [] });
      expect(JSON.stringify(body)).not.toContain(code);
    }
    expect((await used(world)) - before.used).toBe(TOKENS_COST);
    expect((await counted(tool, code)) - before.counted).toBe(1);
  });
});

test.each(["web_search", "web_fetch", "x_search"] as const)(
  "%s: max_uses_exceeded, and the model continues without the tool",
  async (tool) => {
    const input = { query: "gates", url: `${world.pages}/page` };
    const twice: Step = {
      answer: {
        parts: [
          { type: "tool", name: tool, input },
          { type: "tool", name: tool, input },
        ],
      },
    };
    world.upstream.next(twice, text("I go on."));
    const before = await counted(tool, "max_uses_exceeded");
    const body = await post("messages", bodyOf("messages", tool, `See ${input.url}`, { max_uses: 1 }));
    const results = (body.content ?? []).filter(({ type }) => type.endsWith("_tool_result"));
    expect(results).toHaveLength(2);
    expect(results[1]?.content).toMatchObject({ error_code: "max_uses_exceeded" });
    expect(body.content?.at(-1)).toMatchObject({ type: "text", text: "I go on." });
    expect(await counted(tool, "max_uses_exceeded")).toBe(before + 1);
  },
);

test.each(dialects)(
  "too_many_requests: calls beyond the organization's minute are free, the tokens around them are not (%s)",
  async (dialect) => {
    await using paced = await startToolsWorld({ callsPerMinute: 1 });
    for (const outcome of ["runs", "is refused"]) {
      paced.upstream.next(calling("web_search", { query: "gates" }), going);
      const before = await used(paced);
      const body = await post(dialect, bodyOf(dialect, "web_search", "Look it up.", {}), paced);
      expect((await used(paced)) - before).toBe(TOKENS_COST + (outcome === "runs" ? 320_000n : 0n));
      if (outcome === "runs") continue;
      expect(paced.upstream.requests.at(-1)?.text).toContain("too_many_requests: ");
      if (dialect === "messages")
        expect(JSON.stringify(body.content)).toContain('"error_code":"too_many_requests"');
      if (dialect === "responses")
        expect(body.output?.[0]).toMatchObject({ type: "web_search_call", status: "failed" });
    }
  },
);

test("an engine that takes longer than its time-out is unavailable", async () => {
  await using slowWorld = await startToolsWorld({
    policy: {
      webSearch: {
        engine: { type: "searxng", baseUrl: world.pages, credential: null },
        timeoutMs: 100,
      },
    },
  });
  fault = slow(broken.html, 2_000);
  slowWorld.upstream.next(calling("web_search", { query: "slow gates" }), going);
  const body = await post("messages", bodyOf("messages", "web_search", "Look it up.", {}), slowWorld);
  expect(JSON.stringify(body.content)).toContain('"error_code":"unavailable"');
});

const cells = dialects.flatMap((dialect) => [false, true].map((stream) => ({ dialect, stream })));

async function lookUp(dialect: Dialect, model: string, stream: boolean) {
  const response = await world.send(dialect, {
    ...bodyOf(dialect, "web_search", "Look it up.", {}),
    model,
    stream,
  });
  return { status: response.status, body: await response.text() };
}

describe.each(dialects)("arguments that are no object, over %s", (upstream) => {
  test.each(cells)(
    "go on with invalid_tool_input: $dialect, streamed: $stream",
    async ({ dialect, stream }) => {
      for (const input of ["[1]", '"x"', "5", "null", "true", '{"query": "ga', "gates"]) {
        world.upstream.reset();
        world.upstream.next(calling("web_search", input), text("Indeed"));
        const { status, body } = await lookUp(dialect, `m-${upstream}`, stream);
        expect([input, status, body]).toEqual([input, 200, expect.stringContaining("Indeed")]);
        expect(world.upstream.requests[1]?.text).toContain("invalid_tool_input: ");
        if (dialect === "messages") expect(body).toContain('"error_code":"invalid_tool_input"');
        if (dialect === "responses") expect(body).toMatch(/"web_search_call","status":"failed"/);
      }
    },
  );

  test("rule 2.7: those of a client's function are the upstream's fault", async () => {
    const answers = [false, true].map(async (stream) => {
      const response = await world.send("messages", {
        model: `m-${upstream}`,
        stream,
        max_tokens: 500,
        messages: [{ role: "user", content: "What time is it?" }],
        tools: [
          { type: versions.web_search, name: "web_search" },
          { name: "clock", input_schema: { type: "object" } },
        ],
      });
      return response.text();
    });
    const value = { type: "tool_use", id: "toolu_1", name: "clock", input: "{nonsense" };
    const part =
      upstream === "messages"
        ? ({ type: "raw", value } as const)
        : ({ type: "tool", name: "clock", input: value.input } as const);
    world.upstream.next({ answer: { parts: [part] } }, { answer: { parts: [part] } });
    for (const body of await Promise.all(answers)) expect(body).toContain('"upstream_error"');
  });
});

test.each(cells)(
  "a Messages upstream's block that begins with arguments that are no object: $dialect, streamed: $stream",
  async ({ dialect, stream }) => {
    for (const input of [[1], "x", 5, null, true, "[1]"]) {
      world.upstream.reset();
      const value = { type: "tool_use", id: "toolu_1", name: "web_search", input };
      world.upstream.next({ answer: { parts: [{ type: "raw", value }], stop: "tool" } }, text("Indeed"));
      const { status, body } = await lookUp(dialect, "m-messages", stream);
      expect([input, status, body]).toEqual([input, 200, expect.stringContaining("Indeed")]);
      expect(world.upstream.requests[1]?.text).toContain("invalid_tool_input: ");
    }
  },
);
