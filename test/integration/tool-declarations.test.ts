/**
 * Every refusal of server-tool requests over HTTP, row by row of service.md "Errors" and
 * "Server tools": status, code, the field's path in the dialect's own form, before any upstream
 * is called, and free (rule 3.1).
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { organization, startToolsWorld, type ToolsWorld } from "./tools-world.ts";

let world: ToolsWorld;
beforeAll(async () => {
  world = await startToolsWorld();
});
afterAll(() => world[Symbol.asyncDispose]());
beforeEach(() => world.upstream.reset());

const basics: Record<Dialect, object> = {
  messages: { model: "m-chat", max_tokens: 100, messages: [{ role: "user", content: "Search for gates" }] },
  chat: { model: "m-messages", messages: [{ role: "user", content: "Search for gates" }] },
  responses: { model: "m-messages", input: "Search for gates" },
};

const send = (dialect: Dialect, body: object) => world.send(dialect, { ...basics[dialect], ...body });

interface ErrorBody {
  readonly error: {
    readonly type: string;
    readonly message: string;
    readonly code?: string | null;
    readonly param?: string | null;
    readonly details?: { readonly error_code?: string };
  };
}

/** The code that a body tells, and the field it names. */
function told(dialect: Dialect, { error }: ErrorBody): { code: string; param: string } {
  if (dialect !== "messages") return { code: error.code ?? "", param: error.param ?? "" };
  expect(error.details?.error_code).toBe(error.code);
  return { code: error.code ?? error.type, param: error.message.split(": ", 1)[0] ?? "" };
}

type Row = readonly [words: string, dialect: Dialect, body: object, param: string];

function refuses(code: string, rows: readonly Row[]): void {
  test.each(rows)("%s (%s)", async (_, dialect, body, param) => {
    const before = await world.plane.holds.standing.credit(organization);
    const response = await send(dialect, body);
    expect([response.status, response.headers.get("x-should-retry")]).toEqual([400, "false"]);
    const error = (await response.json()) as ErrorBody;
    expect(error.error.type).toBe("invalid_request_error");
    expect(told(dialect, error)).toEqual({ code, param });
    expect(world.upstream.requests).toHaveLength(0);
    expect(await world.plane.holds.standing.credit(organization)).toEqual(before);
  });
}

const search = { type: "web_search_20250305", name: "web_search" };
const fetch = { type: "web_fetch_20260318", name: "web_fetch" };
const xSearch = { type: "x_search_20261005", name: "x_search" };
const tools = (...list: object[]) => ({ tools: list });
const inSearch = (more: object) => tools({ ...search, ...more });
const hosted = (more: object = {}) => ({ type: "web_search", ...more });
const inHosted = (more: object) => tools(hosted(more));
const options = (more: object) => ({ web_search_options: more });
const many = (count: number, form: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => form(index));
const domains = (count: number) => many(count, (index) => `d${index}.example`);
const handles = (count: number) => many(count, (index) => `h${index}`);
const approximate = (more: object) => ({ user_location: { type: "approximate", ...more } });
const nested = (more: object) => ({ user_location: { type: "approximate", approximate: more } });

describe("400 unsupported_tool", () => {
  refuses("unsupported_tool", [
    ["server tool switched off", "messages", { model: "m-off", ...tools(search) }, "tools.0.type"],
    ["server tool switched off", "messages", { model: "m-off", ...tools(fetch) }, "tools.0.type"],
    ["server tool switched off", "messages", { model: "m-off", ...tools(xSearch) }, "tools.0.type"],
    ["server tool switched off", "responses", { model: "m-off", ...tools(hosted()) }, "tools[0].type"],
    [
      "server tool switched off",
      "responses",
      { model: "m-off", ...tools({ type: "x_search" }) },
      "tools[0].type",
    ],
    ["engine not active", "messages", { model: "m-pages", ...tools(fetch, search) }, "tools.1.type"],
    ["engine not active", "messages", { model: "m-pages", ...tools(xSearch) }, "tools.0.type"],
    ["engine not active", "responses", { model: "m-pages", ...tools(hosted()) }, "tools[0].type"],
    ["engine not active", "chat", { model: "m-pages", ...options({}) }, "web_search_options"],
    ...[
      "web_search_20990101",
      "web_search",
      "web_fetch_20250305",
      "web_fetch",
      "x_search",
      "x_search_20250101",
    ].map((type): Row => [
      `tool type version outside the lists: ${type}`,
      "messages",
      tools({ ...search, type }),
      "tools.0.type",
    ]),
    ...["web_search_preview_2025_03_11", "web_search_20250305", "x_search_20261005"].map((type): Row => [
      `tool type version outside the lists: ${type}`,
      "responses",
      tools({ type }),
      "tools[0].type",
    ]),
    ...[
      "code_execution_20250522",
      "code_execution_20250825",
      "mcp_toolset",
      "tool_search_tool_regex_20251119",
    ].map((type): Row => [
      `other server tools: ${type}`,
      "messages",
      tools({ type, name: "t" }),
      "tools.0.type",
    ]),
    ...["file_search", "image_generation", "computer_use_preview", "code_interpreter", "mcp"].map(
      (type): Row => [`other server tools: ${type}`, "responses", tools({ type }), "tools[0].type"],
    ),
    [
      "other server tools beside one of ours",
      "messages",
      tools(search, { type: "code_execution_20250825", name: "c" }),
      "tools.1.type",
    ],
    [
      "other server tools beside one of ours",
      "responses",
      tools(hosted(), { type: "file_search" }),
      "tools[1].type",
    ],
    ["hosted tools in Chat (rule 3.3)", "chat", tools({ type: "web_search" }), "tools[0].type"],
    [
      "x_search is unavailable in Chat",
      "chat",
      { ...options({}), ...tools({ type: "x_search" }) },
      "tools[0].type",
    ],
    [
      "hosted tool_choice when tools holds no server tool",
      "messages",
      { ...tools({ name: "f", input_schema: {} }), tool_choice: { type: "tool", name: "web_search" } },
      "tool_choice",
    ],
    [
      "hosted tool_choice when tools holds no server tool",
      "responses",
      { tool_choice: { type: "web_search" } },
      "tool_choice",
    ],
    [
      "hosted tool_choice when tools holds no server tool",
      "responses",
      { tool_choice: { type: "x_search" }, ...tools({ type: "function", name: "f", parameters: {} }) },
      "tool_choice",
    ],
    [
      "a hosted shell container",
      "responses",
      tools({ type: "shell", environment: { type: "container_auto" } }),
      "tools[0].type",
    ],
    [
      "custom tools when web_search_options is present",
      "chat",
      { ...options({}), ...tools({ type: "custom", custom: { name: "c" } }) },
      "tools[0].type",
    ],
    ...["custom", "local_shell", "apply_patch", "shell"].map((type): Row => [
      `only function client tools may accompany: ${type}`,
      "responses",
      tools(hosted(), { type, name: "c" }),
      "tools[1].type",
    ]),
  ]);
});

describe("400 unsupported_content", () => {
  const user = (part: object) => [{ role: "user", content: [{ type: "text", text: "x" }, part] }];
  const item = (part: object) => [{ role: "user", content: [{ type: "input_text", text: "x" }, part] }];
  refuses("unsupported_content", [
    [
      "model does not support tool calling",
      "messages",
      { model: "m-deaf", ...tools(search) },
      "tools.0.type",
    ],
    ["model does not support tool calling", "messages", { model: "m-deaf", ...tools(fetch) }, "tools.0.type"],
    [
      "model does not support tool calling",
      "responses",
      { model: "m-deaf", ...tools({ type: "x_search" }) },
      "tools[0].type",
    ],
    [
      "model does not support tool calling",
      "chat",
      { model: "m-deaf", ...options({}) },
      "web_search_options",
    ],
    [
      "content other than text and images: input_file",
      "responses",
      {
        ...tools(hosted()),
        input: item({ type: "input_file", file_data: "data:application/pdf;base64,AAAA", filename: "a.pdf" }),
      },
      "input[0].content[1].type",
    ],
    [
      "content other than text and images: input_file of a function",
      "responses",
      {
        ...tools(hosted()),
        input: [
          { role: "user", content: "x" },
          { type: "function_call", call_id: "c", name: "f", arguments: "{}" },
          {
            type: "function_call_output",
            call_id: "c",
            output: [{ type: "input_file", file_data: "data:text/plain;base64,AAAA" }],
          },
        ],
      },
      "input[2].output[0].type",
    ],
    [
      "content other than text and images: file",
      "chat",
      {
        ...options({}),
        messages: user({
          type: "file",
          file: { file_data: "data:application/pdf;base64,AAAA", filename: "a.pdf" },
        }),
      },
      "messages[0].content[1].type",
    ],
    [
      "content other than text and images: input_audio",
      "chat",
      {
        ...options({}),
        messages: user({ type: "input_audio", input_audio: { data: "AAAA", format: "wav" } }),
      },
      "messages[0].content[1].type",
    ],
    ...["custom_tool_call", "custom_tool_call_output", "local_shell_call", "apply_patch_call"].map(
      (type): Row => [
        `history items such as ${type}`,
        "responses",
        {
          ...tools(hosted()),
          input: [
            { role: "user", content: "x" },
            { type, call_id: "c" },
          ],
        },
        "input[1].type",
      ],
    ),
  ]);
});

describe("400 unsupported_parameter", () => {
  refuses("unsupported_parameter", [
    [
      "web_search_options in Chat when server tools are switched off entirely",
      "chat",
      { model: "m-off", ...options({}) },
      "web_search_options",
    ],
    [
      "mcp_servers",
      "messages",
      { ...tools(search), mcp_servers: [{ type: "url", url: "https://mcp.example" }] },
      "mcp_servers",
    ],
    ["n > 1 in Chat on translation path", "chat", { ...options({}), n: 2 }, "n"],
    [
      "the container parameter today",
      "messages",
      { ...tools(search), container: { skills: [] } },
      "container",
    ],
  ]);
});

describe("400 invalid_request_error", () => {
  refuses("invalid_request_error", [
    ["name required", "messages", tools({ type: search.type }), "tools.0.name"],
    ["name required: web_fetch", "messages", tools({ ...fetch, name: "fetch" }), "tools.0.name"],
    ["name required: x_search", "messages", tools({ ...xSearch, name: "web_search" }), "tools.0.name"],
    ["max_uses", "messages", inSearch({ max_uses: 0 }), "tools.0.max_uses"],
    ["max_uses", "messages", tools({ ...fetch, max_uses: "3" }), "tools.0.max_uses"],
    ["max_uses", "messages", tools({ ...xSearch, max_uses: 1.5 }), "tools.0.max_uses"],
    [
      "allowed_domains with blocked_domains",
      "messages",
      inSearch({ allowed_domains: ["a.example"], blocked_domains: ["b.example"] }),
      "tools.0.blocked_domains",
    ],
    [
      "allowed_domains with blocked_domains",
      "messages",
      tools({ ...fetch, allowed_domains: ["a.example"], blocked_domains: ["b.example"] }),
      "tools.0.blocked_domains",
    ],
    [
      "plain domain, no scheme",
      "messages",
      inSearch({ blocked_domains: ["ok.example/path", "https://a.example"] }),
      "tools.0.blocked_domains.1",
    ],
    [
      "* allowed only in the path",
      "messages",
      tools({ ...fetch, allowed_domains: ["*.example"] }),
      "tools.0.allowed_domains.0",
    ],
    ["citations", "messages", tools({ ...fetch, citations: true }), "tools.0.citations"],
    [
      "citations",
      "messages",
      tools({ ...fetch, citations: { enabled: "yes" } }),
      "tools.0.citations.enabled",
    ],
    [
      "max_content_tokens",
      "messages",
      tools({ ...fetch, max_content_tokens: -1 }),
      "tools.0.max_content_tokens",
    ],
    ["use_cache", "messages", tools({ ...fetch, use_cache: "no" }), "tools.0.use_cache"],
    [
      "client tool name clashes with a server tool: web_search",
      "messages",
      tools(search, { name: "web_search", input_schema: { type: "object" } }),
      "tools.1.name",
    ],
    [
      "client tool name clashes with a server tool: web_fetch",
      "messages",
      tools({ name: "web_fetch", input_schema: { type: "object" } }, fetch),
      "tools.0.name",
    ],
    [
      "client tool name clashes with a server tool: x_search",
      "messages",
      tools(xSearch, { type: "custom", name: "x_search", input_schema: { type: "object" } }),
      "tools.1.name",
    ],
    [
      "client tool name clashes with a server tool: web_search",
      "responses",
      tools(hosted(), { type: "function", name: "web_search", parameters: {} }),
      "tools[1].name",
    ],
    [
      "client tool name clashes with a server tool: x_search",
      "responses",
      tools({ type: "x_search" }, { type: "function", name: "x_search", parameters: {} }),
      "tools[1].name",
    ],
    [
      "client tool name clashes with a server tool: web_search",
      "chat",
      { ...options({}), ...tools({ type: "function", function: { name: "web_search" } }) },
      "tools[0].function.name",
    ],
    [
      "client tool name clashes with a server tool: web_search, older form",
      "chat",
      { ...options({}), functions: [{ name: "web_search" }] },
      "functions[0].name",
    ],
    [
      "search_context_size not low/medium/high",
      "responses",
      inHosted({ search_context_size: "huge" }),
      "tools[0].search_context_size",
    ],
    [
      "search_context_size not low/medium/high",
      "chat",
      options({ search_context_size: 3 }),
      "web_search_options.search_context_size",
    ],
    [
      "allowed_domains with blocked_domains",
      "responses",
      inHosted({ filters: { allowed_domains: ["a.example"], blocked_domains: ["b.example"] } }),
      "tools[0].filters.blocked_domains",
    ],
    [
      "filters.blocked_domains over 100 domains",
      "responses",
      inHosted({ filters: { blocked_domains: domains(101) } }),
      "tools[0].filters.blocked_domains",
    ],
    [
      "filters.blocked_domains with a scheme",
      "responses",
      inHosted({ filters: { blocked_domains: ["http://a.example"] } }),
      "tools[0].filters.blocked_domains[0]",
    ],
    [
      "filters.allowed_domains over 100 domains",
      "responses",
      inHosted({ filters: { allowed_domains: domains(101) } }),
      "tools[0].filters.allowed_domains",
    ],
    [
      "filters.allowed_domains with a scheme",
      "responses",
      inHosted({ filters: { allowed_domains: ["http://a.example"] } }),
      "tools[0].filters.allowed_domains[0]",
    ],
    ["filters is no object", "responses", inHosted({ filters: ["a.example"] }), "tools[0].filters"],
    [
      "user_location not approximate",
      "messages",
      inSearch({ user_location: { type: "exact", city: "Ubud" } }),
      "tools.0.user_location.type",
    ],
    [
      "user_location not approximate",
      "responses",
      inHosted({ user_location: { city: "Ubud" } }),
      "tools[0].user_location.type",
    ],
    [
      "user_location not approximate",
      "chat",
      options({ user_location: { type: "exact", approximate: { city: "Ubud" } } }),
      "web_search_options.user_location.type",
    ],
    ["user_location empty", "messages", inSearch(approximate({})), "tools.0.user_location"],
    ["user_location empty", "responses", inHosted(approximate({})), "tools[0].user_location"],
    ["user_location empty", "chat", options(nested({})), "web_search_options.user_location.approximate"],
    [
      "country not 2 letters",
      "messages",
      inSearch(approximate({ country: "IDN" })),
      "tools.0.user_location.country",
    ],
    [
      "country not 2 letters",
      "responses",
      inHosted(approximate({ country: "I1" })),
      "tools[0].user_location.country",
    ],
    [
      "country not 2 letters",
      "chat",
      options(nested({ country: "Indonesia" })),
      "web_search_options.user_location.approximate.country",
    ],
    [
      "timezone not IANA",
      "messages",
      inSearch(approximate({ timezone: "+07:00" })),
      "tools.0.user_location.timezone",
    ],
    [
      "timezone not IANA",
      "responses",
      inHosted(approximate({ timezone: "Mars/Base" })),
      "tools[0].user_location.timezone",
    ],
    [
      "timezone not IANA",
      "chat",
      options(nested({ timezone: "WIB time" })),
      "web_search_options.user_location.approximate.timezone",
    ],
    [
      "in Chat also missing approximate object",
      "chat",
      options({ user_location: { type: "approximate", city: "Ubud" } }),
      "web_search_options.user_location.approximate",
    ],
    ["web_search_options is no object", "chat", { web_search_options: true }, "web_search_options"],
    [
      "same tool defined twice",
      "messages",
      tools(search, { ...search, type: "web_search_20260318" }),
      "tools.1",
    ],
    ["same tool defined twice", "responses", tools(hosted(), { type: "web_search_preview" }), "tools[1]"],
    ["same tool defined twice", "responses", tools({ type: "x_search" }, { type: "x_search" }), "tools[1]"],
    [
      "choose one handle list",
      "messages",
      tools({ ...xSearch, allowed_x_handles: ["a"], excluded_x_handles: ["b"] }),
      "tools.0.excluded_x_handles",
    ],
    [
      "at most 20 handles each",
      "messages",
      tools({ ...xSearch, excluded_x_handles: handles(21) }),
      "tools.0.excluded_x_handles",
    ],
    [
      "at most 20 handles each",
      "responses",
      tools({ type: "x_search", allowed_x_handles: handles(21) }),
      "tools[0].allowed_x_handles",
    ],
    ["from_date YYYY-MM-DD", "messages", tools({ ...xSearch, from_date: "2026-02-30" }), "tools.0.from_date"],
    ["to_date YYYY-MM-DD", "responses", tools({ type: "x_search", to_date: "1 March" }), "tools[0].to_date"],
    ...[0, 1.5, -1, "3", true].map((cap): Row => [
      "max_tool_calls not an integer >= 1",
      "responses",
      { ...tools(hosted()), max_tool_calls: cap },
      "max_tool_calls",
    ]),
    [
      "max_tool_calls not an integer >= 1, without a server tool",
      "responses",
      { max_tool_calls: 0 },
      "max_tool_calls",
    ],
    [
      "hosted tool_choice without the same tool in tools",
      "messages",
      { ...tools(search), tool_choice: { type: "tool", name: "x_search" } },
      "tool_choice",
    ],
    [
      "hosted tool_choice without the same tool in tools",
      "chat",
      { ...options({}), tool_choice: { type: "x_search" } },
      "tool_choice",
    ],
    [
      "hosted tool_choice without the same tool in tools",
      "responses",
      { ...tools({ type: "x_search" }), tool_choice: { type: "web_search" } },
      "tool_choice",
    ],
    [
      "hosted tool_choice without the same tool in tools",
      "responses",
      { ...tools(hosted()), tool_choice: { type: "x_search" } },
      "tool_choice",
    ],
    [
      "web_search_call input item without the same tool in tools",
      "responses",
      { input: [{ type: "web_search_call", id: "ws_1", status: "completed" }] },
      "input[0]",
    ],
    [
      "x_search_call input item without the same tool in tools",
      "responses",
      {
        ...tools(hosted()),
        input: [
          { role: "user", content: "x" },
          { type: "x_search_call", id: "xs_1", status: "completed" },
        ],
      },
      "input[1]",
    ],
    [
      "invalid encrypted_content",
      "messages",
      {
        ...tools(search),
        messages: [
          { role: "user", content: "x" },
          {
            role: "assistant",
            content: [
              { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "q" } },
              {
                type: "web_search_tool_result",
                tool_use_id: "srvtoolu_1",
                content: [
                  {
                    type: "web_search_result",
                    url: "https://a.example",
                    title: "A",
                    encrypted_content: "EqgfCioIARgB",
                  },
                ],
              },
            ],
          },
        ],
      },
      "messages.1.content.1.content.0.encrypted_content",
    ],
  ]);
});

describe("served", () => {
  test.each<[string, Dialect, object]>([
    [
      "allowed_callers, response_inclusion accepted and ignored",
      "messages",
      inSearch({ allowed_callers: ["direct"], response_inclusion: "full" }),
    ],
    [
      "parameters that others know are ignored (dialects.md §E)",
      "messages",
      inSearch({
        defer_loading: true,
        strict: true,
        cache_control: { type: "ephemeral" },
        search_profile: "x",
      }),
    ],
    [
      "plain domain with optional path, * in the path",
      "messages",
      inSearch({ allowed_domains: ["gates.example/new*"] }),
    ],
    ["100 domains", "responses", inHosted({ filters: { allowed_domains: domains(100) } })],
    [
      "a leading @ is allowed",
      "responses",
      tools({ type: "x_search", allowed_x_handles: ["@gates", "keepers"] }),
    ],
    ["web_search_20260209", "messages", tools({ ...search, type: "web_search_20260209" })],
    ["web_fetch_20260309", "messages", tools({ ...fetch, type: "web_fetch_20260309" })],
    [
      "web_search_2025_08_26",
      "responses",
      tools({ type: "web_search_2025_08_26", search_context_size: "high" }),
    ],
    [
      "web_search_preview",
      "responses",
      tools({ type: "web_search_preview", ...approximate({ country: "ID", timezone: "Asia/Makassar" }) }),
    ],
    [
      "user_location",
      "chat",
      options({ search_context_size: "low", ...nested({ city: "Ubud", region: "Bali", country: "id" }) }),
    ],
    [
      "images",
      "chat",
      {
        ...options({}),
        messages: [
          {
            role: "user",
            content: [
              { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } },
              { type: "text", text: "Search" },
            ],
          },
        ],
      },
    ],
    [
      "client function tools may accompany",
      "responses",
      tools(
        hosted(),
        { type: "function", name: "mine", parameters: { type: "object" } },
        { type: "namespace", name: "n", tools: [{ type: "function", name: "g" }] },
      ),
    ],
    [
      "parameters without equivalent are dropped silently",
      "chat",
      {
        ...options({}),
        seed: 1,
        frequency_penalty: 1,
        presence_penalty: 1,
        logprobs: true,
        prompt_cache_key: "k",
      },
    ],
    [
      "nulls count as absent (rule 1.17)",
      "responses",
      {
        ...inHosted({ filters: null, user_location: null, search_context_size: null }),
        max_tool_calls: null,
      },
    ],
  ])("%s (%s)", async (_, dialect, body) => {
    const response = await send(dialect, body);
    expect([response.status, await response.text()]).toEqual([200, expect.any(String)]);
    expect(world.upstream.requests.length).toBeGreaterThan(0);
  });

  test("parameters without equivalent reach no upstream and are named (rule 2.2)", async () => {
    const lossy = {
      seed: 1,
      frequency_penalty: 1,
      presence_penalty: 1,
      logprobs: true,
      prompt_cache_key: "k",
    };
    const response = await send("chat", { ...options({}), ...lossy, model: "m-chat" });
    expect(response.status).toBe(200);
    const sent = JSON.parse(world.upstream.requests[0]?.text ?? "{}") as object;
    for (const field of Object.keys(lossy)) {
      expect(Object.keys(sent)).not.toContain(field);
      expect(response.headers.get("x-gapura-dropped")).toContain(field);
    }
  });
});

test("402: a continuation request sent while the balance is empty", async () => {
  await using poor = await startToolsWorld({ granted: 1n });
  const ask = (messages: object[]) =>
    poor.server.fetch("/v1/messages", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...basics.messages, ...tools(search), messages }),
    });
  const asked = [{ role: "user", content: "Search for gates" }];
  const first = (await (await ask(asked)).json()) as { stop_reason: string; content: object[] };
  expect(first.stop_reason).toBe("pause_turn");
  const second = await ask([...asked, { role: "assistant", content: first.content }]);
  expect([second.status, second.headers.get("x-should-retry")]).toEqual([402, "false"]);
  expect(await second.text()).toContain("Credit balance is too low");
});
