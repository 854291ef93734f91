import { describe, expect, test } from "vitest";
import type { Dialect } from "../dialects/dialect.ts";
import type { JsonObject } from "../dialects/messages/types.ts";
import { ApiError } from "../lib/api-error.ts";
import { readDeclarations } from "./declarations.ts";

const search = { type: "web_search_20250305", name: "web_search" };
const fetch = { type: "web_fetch_20260318", name: "web_fetch" };
const x = { type: "x_search_20261005", name: "x_search" };
const many = (count: number) => Array.from({ length: count }, (_, index) => `d${index}.example`);

function refusal(dialect: Dialect, body: JsonObject): { code: string; param: string | undefined } {
  try {
    readDeclarations(dialect, body, true);
  } catch (error) {
    if (error instanceof ApiError) return { code: error.code, param: error.param };
    throw error;
  }
  return { code: "none", param: undefined };
}

describe("accepted", () => {
  test.each(["web_search_20250305", "web_search_20260209", "web_search_20260318"])("Messages: %s", (type) => {
    const tool = {
      type,
      name: "web_search",
      max_uses: 3,
      allowed_domains: ["a.example/x*"],
      allowed_callers: ["direct"],
      response_inclusion: "full",
    };
    expect(readDeclarations("messages", { tools: [tool] }, true).webSearch).toMatchObject({
      maxUses: 3,
      results: 10,
    });
  });

  test.each(["web_fetch_20250910", "web_fetch_20260209", "web_fetch_20260309", "web_fetch_20260318"])(
    "Messages: %s",
    (type) => {
      const tool = {
        type,
        name: "web_fetch",
        citations: { enabled: true },
        max_content_tokens: 500,
        use_cache: false,
      };
      expect(readDeclarations("messages", { tools: [tool] }, true).webFetch).toMatchObject({
        citations: true,
        maxContentTokens: 500,
        useCache: false,
      });
    },
  );

  test("null counts as absent, use_cache is true by default (rule 1.17)", () => {
    const tool = { ...fetch, max_uses: null, citations: null, use_cache: null, user_location: null };
    expect(readDeclarations("messages", { tools: [tool] }, true).webFetch).toMatchObject({
      maxUses: null,
      citations: false,
      useCache: true,
    });
  });

  test("an empty list of handles is no list, like one of domains", () => {
    const x = { type: "x_search_20261005", name: "x_search" };
    const read = (more: object) => readDeclarations("messages", { tools: [{ ...x, ...more }] }, true).xSearch;
    const none = { allowedHandles: null, excludedHandles: null };
    expect(read({ allowed_x_handles: ["a"], excluded_x_handles: [] })).toMatchObject({
      ...none,
      allowedHandles: ["a"],
    });
    expect(read({ allowed_x_handles: [], excluded_x_handles: ["b"] })).toMatchObject({
      ...none,
      excludedHandles: ["b"],
    });
    expect(read({ allowed_x_handles: [], excluded_x_handles: [] })).toMatchObject(none);
  });

  test("an empty city beside a country says nothing", () => {
    const location = { type: "approximate", city: "", region: null, country: "ID" };
    const tool = { type: "web_search", user_location: location };
    expect(readDeclarations("responses", { tools: [tool] }, true).webSearch?.location).toEqual({
      country: "ID",
    });
  });

  test.each([
    ["low", 5],
    ["medium", 8],
    ["high", 10],
    [undefined, 8],
  ])("search_context_size %s means %i results, in Responses and Chat", (size, results) => {
    const options = size === undefined ? {} : { search_context_size: size };
    expect(
      readDeclarations("responses", { tools: [{ type: "web_search", ...options }] }, true).webSearch?.results,
    ).toBe(results);
    expect(readDeclarations("chat", { web_search_options: options }, true).webSearch?.results).toBe(results);
  });

  test("web_search also opens pages when the model may, cut at 25,000 tokens, under the same domains", () => {
    const tools = [{ type: "web_search", filters: { allowed_domains: ["a.example"] } }];
    const opened = readDeclarations("responses", { tools }, true).webFetch;
    expect(opened).toMatchObject({
      maxContentTokens: 25_000,
      domains: { allowed: [{ domain: "a.example" }] },
    });
    expect(readDeclarations("responses", { tools }, false).webFetch).toBeNull();
  });

  test("blocked domains of a Responses client hold for searches and opened pages", () => {
    const tools = [{ type: "web_search", filters: { blocked_domains: ["b.example"] } }];
    const domains = { allowed: null, blocked: [{ domain: "b.example" }] };
    expect(readDeclarations("responses", { tools }, true)).toMatchObject({
      webSearch: { domains },
      webFetch: { domains },
    });
  });

  test("a function tool named web_fetch disables page opening", () => {
    const responses = { tools: [{ type: "web_search" }, { type: "function", name: "web_fetch" }] };
    expect(readDeclarations("responses", responses, true).webFetch).toBeNull();
    const chat = { web_search_options: {}, tools: [{ type: "function", function: { name: "web_fetch" } }] };
    expect(readDeclarations("chat", chat, true).webFetch).toBeNull();
  });

  test("the contract limits the list of domains in Responses only", () => {
    const tool = { ...search, allowed_domains: many(101) };
    expect(readDeclarations("messages", { tools: [tool] }, true).webSearch?.domains.allowed).toHaveLength(
      101,
    );
  });

  test("a server tool among additional_tools counts (dialects.md §H3)", () => {
    const added = { type: "additional_tools", tools: [{ type: "web_search", search_context_size: "low" }] };
    expect(readDeclarations("responses", { input: [added] }, true)).toMatchObject({
      webSearch: { results: 5 },
      webFetch: { maxContentTokens: 25_000 },
    });
  });

  test("handles may have a leading @, dates are days", () => {
    const tool = {
      type: "x_search",
      allowed_x_handles: ["@a", "b_1"],
      from_date: "2026-02-28",
      to_date: "2026-03-01",
    };
    expect(readDeclarations("responses", { tools: [tool] }, true).xSearch).toEqual({
      maxUses: null,
      allowedHandles: ["a", "b_1"],
      excludedHandles: null,
      fromDate: "2026-02-28",
      toDate: "2026-03-01",
    });
  });

  test.each<[Dialect, JsonObject, string | null]>([
    ["messages", { tools: [search, fetch], tool_choice: { type: "tool", name: "web_fetch" } }, "web_fetch"],
    ["messages", { tools: [search], tool_choice: { type: "any" } }, null],
    ["chat", { web_search_options: {}, tool_choice: "required" }, "web_search"],
    [
      "chat",
      {
        web_search_options: {},
        tool_choice: "required",
        tools: [{ type: "function", function: { name: "f" } }],
      },
      null,
    ],
    ["responses", { tools: [{ type: "web_search" }], tool_choice: { type: "web_search" } }, "web_search"],
    ["responses", { tools: [{ type: "x_search" }], tool_choice: { type: "x_search" } }, "x_search"],
  ])("%s %j forces %s", (dialect, body, forced) => {
    expect(readDeclarations(dialect, body, true).forced).toBe(forced);
  });

  test.each<[string[], string[]]>([
    [["web_search"], ["webSearch", "webFetch"]],
    [
      ["web_search_preview", "function"],
      ["webSearch", "webFetch"],
    ],
    [["x_search"], ["xSearch"]],
    [["function"], []],
  ])("a Responses choice that allows %j leaves %j (dialects.md §D1)", (types, left) => {
    const tools = [{ type: "web_search" }, { type: "x_search" }, { type: "function", name: "f" }];
    const allowed = types.map((type) => ({ type, ...(type === "function" ? { name: "f" } : {}) }));
    const body = { tools, tool_choice: { type: "allowed_tools", mode: "auto", tools: allowed } };
    const { webSearch, webFetch, xSearch } = readDeclarations("responses", body, true);
    const usable = Object.entries({ webSearch, webFetch, xSearch }).filter(([, tool]) => tool !== null);
    expect(usable.map(([name]) => name)).toEqual(left);
  });
});

test.each([
  ["auto", ["webSearch", "webFetch"]],
  ["required", []],
])("a Chat choice of mode %s among listed functions leaves %j (dialects.md §D1)", (mode, left) => {
  const f = { type: "function", function: { name: "f" } };
  const tool_choice = { type: "allowed_tools", allowed_tools: { mode, tools: [f] } };
  const { webSearch, webFetch } = readDeclarations(
    "chat",
    { web_search_options: {}, tools: [f], tool_choice },
    true,
  );
  const usable = Object.entries({ webSearch, webFetch }).filter(([, tool]) => tool !== null);
  expect(usable.map(([name]) => name)).toEqual(left);
});

describe("refused with the code that the contract names, and the field", () => {
  const messages = (tool: object, ...others: object[]): JsonObject =>
    ({ tools: [tool, ...others] }) as unknown as JsonObject;
  const inSearch = (more: object) => messages({ ...search, ...more });
  const inResponses = (more: object, body: object = {}) =>
    ({ tools: [{ type: "web_search", ...more }], ...body }) as unknown as JsonObject;
  const inChat = (options: object, body: object = {}) =>
    ({ web_search_options: options, ...body }) as unknown as JsonObject;
  const request = "invalid_request_error";

  test.each<[string, Dialect, JsonObject, string, string]>([
    ["another name", "messages", inSearch({ name: "search" }), request, "tools.0.name"],
    ["no name", "messages", messages({ type: search.type }), request, "tools.0.name"],
    ["max_uses 0", "messages", inSearch({ max_uses: 0 }), request, "tools.0.max_uses"],
    ["max_uses 1.5", "messages", inSearch({ max_uses: 1.5 }), request, "tools.0.max_uses"],
    [
      "both domain lists",
      "messages",
      inSearch({ allowed_domains: ["a.example"], blocked_domains: ["b.example"] }),
      request,
      "tools.0.blocked_domains",
    ],
    [
      "a domain with a scheme",
      "messages",
      inSearch({ allowed_domains: ["ok.example", "https://a.example"] }),
      request,
      "tools.0.allowed_domains.1",
    ],
    [
      "* in the host",
      "messages",
      inSearch({ blocked_domains: ["*.example"] }),
      request,
      "tools.0.blocked_domains.0",
    ],
    [
      "a location without type",
      "messages",
      inSearch({ user_location: { city: "X" } }),
      request,
      "tools.0.user_location.type",
    ],
    [
      "rule 3.2: an empty location",
      "messages",
      inSearch({ user_location: { type: "approximate" } }),
      request,
      "tools.0.user_location",
    ],
    [
      "rule 3.2: a location of empty texts",
      "messages",
      inSearch({ user_location: { type: "approximate", city: "", region: " " } }),
      request,
      "tools.0.user_location",
    ],
    [
      "a country of three letters",
      "messages",
      inSearch({ user_location: { type: "approximate", country: "IDN" } }),
      request,
      "tools.0.user_location.country",
    ],
    [
      "a time zone that is an offset",
      "messages",
      inSearch({ user_location: { type: "approximate", timezone: "+07:00" } }),
      request,
      "tools.0.user_location.timezone",
    ],
    [
      "an unknown time zone",
      "messages",
      inSearch({ user_location: { type: "approximate", timezone: "Mars/Base" } }),
      request,
      "tools.0.user_location.timezone",
    ],
    ["the same tool twice", "messages", messages(search, search), request, "tools.1"],
    [
      "a client tool of the same name",
      "messages",
      messages(search, { name: "web_search", input_schema: {} }),
      request,
      "tools.1.name",
    ],
    [
      "both handle lists",
      "messages",
      messages({ ...x, allowed_x_handles: ["a"], excluded_x_handles: ["b"] }),
      request,
      "tools.0.excluded_x_handles",
    ],
    [
      "21 handles",
      "messages",
      messages({ ...x, allowed_x_handles: many(21).map((_, index) => `h${index}`) }),
      request,
      "tools.0.allowed_x_handles",
    ],
    [
      "a handle that would change the query",
      "messages",
      messages({ ...x, allowed_x_handles: ["a OR b"] }),
      request,
      "tools.0.allowed_x_handles.0",
    ],
    ["30 February", "messages", messages({ ...x, from_date: "2026-02-30" }), request, "tools.0.from_date"],
    [
      "dates the wrong way round",
      "messages",
      messages({ ...x, from_date: "2026-03-02", to_date: "2026-03-01" }),
      request,
      "tools.0.to_date",
    ],
    [
      "101 domains",
      "responses",
      inResponses({ filters: { allowed_domains: many(101) } }),
      request,
      "tools[0].filters.allowed_domains",
    ],
    [
      "a domain with a scheme",
      "responses",
      inResponses({ filters: { allowed_domains: ["http://a.example"] } }),
      request,
      "tools[0].filters.allowed_domains[0]",
    ],
    [
      "an unknown context size",
      "responses",
      inResponses({ search_context_size: "huge" }),
      request,
      "tools[0].search_context_size",
    ],
    [
      "a prototype's name as context size",
      "responses",
      inResponses({ search_context_size: "constructor" }),
      request,
      "tools[0].search_context_size",
    ],
    ["max_tool_calls 0", "responses", inResponses({}, { max_tool_calls: 0 }), request, "max_tool_calls"],
    [
      "max_tool_calls as text",
      "responses",
      inResponses({}, { max_tool_calls: "3" }),
      request,
      "max_tool_calls",
    ],
    [
      "the same tool twice",
      "responses",
      { tools: [{ type: "web_search" }, { type: "web_search_preview" }] },
      request,
      "tools[1]",
    ],
    [
      "a function named web_search",
      "responses",
      { tools: [{ type: "web_search" }, { type: "function", name: "web_search" }] },
      request,
      "tools[1].name",
    ],
    [
      "a custom tool",
      "responses",
      { tools: [{ type: "web_search" }, { type: "custom", name: "c" }] },
      "unsupported_tool",
      "tools[1].type",
    ],
    [
      "a local shell",
      "responses",
      { tools: [{ type: "web_search" }, { type: "local_shell" }] },
      "unsupported_tool",
      "tools[1].type",
    ],
    [
      "a file",
      "responses",
      inResponses({}, { input: [{ role: "user", content: [{ type: "input_file", file_data: "x" }] }] }),
      "unsupported_content",
      "input[0].content[0].type",
    ],
    [
      "a file in a function's output",
      "responses",
      inResponses({}, { input: [{ type: "function_call_output", output: [{ type: "input_file" }] }] }),
      "unsupported_content",
      "input[0].output[0].type",
    ],
    [
      "a custom tool among additional_tools",
      "responses",
      inResponses({}, { input: [{ type: "additional_tools", tools: [{ type: "custom", name: "c" }] }] }),
      "unsupported_tool",
      "input[0].tools[0].type",
    ],
    [
      "the same tool twice, once among additional_tools",
      "responses",
      inResponses({}, { input: [{ type: "additional_tools", tools: [{ type: "web_search" }] }] }),
      "invalid_request_error",
      "input[0].tools[0]",
    ],
    [
      "a custom call in the history",
      "responses",
      inResponses({}, { input: [{ type: "custom_tool_call" }] }),
      "unsupported_content",
      "input[0].type",
    ],
    [
      "a local shell call in the history",
      "responses",
      inResponses({}, { input: [{ type: "local_shell_call" }] }),
      "unsupported_content",
      "input[0].type",
    ],
    ["options that are no object", "chat", { web_search_options: true }, request, "web_search_options"],
    [
      "a location without approximate",
      "chat",
      inChat({ user_location: { type: "approximate", city: "X" } }),
      request,
      "web_search_options.user_location.approximate",
    ],
    [
      "rule 3.2: an empty approximate",
      "chat",
      inChat({ user_location: { type: "approximate", approximate: {} } }),
      request,
      "web_search_options.user_location.approximate",
    ],
    [
      "an unknown context size",
      "chat",
      inChat({ search_context_size: 3 }),
      request,
      "web_search_options.search_context_size",
    ],
    ["n of 2", "chat", inChat({}, { n: 2 }), "unsupported_parameter", "n"],
    [
      "a custom tool",
      "chat",
      inChat({}, { tools: [{ type: "custom" }] }),
      "unsupported_tool",
      "tools[0].type",
    ],
    [
      "a function named web_search",
      "chat",
      inChat({}, { tools: [{ type: "function", function: { name: "web_search" } }] }),
      request,
      "tools[0].function.name",
    ],
    [
      "audio",
      "chat",
      inChat({}, { messages: [{ role: "user", content: [{ type: "input_audio" }] }] }),
      "unsupported_content",
      "messages[0].content[0].type",
    ],
    [
      "a file",
      "chat",
      inChat({}, { messages: [{ role: "user", content: [{ type: "text", text: "x" }, { type: "file" }] }] }),
      "unsupported_content",
      "messages[0].content[1].type",
    ],
  ])("%s (%s)", (_name, dialect, body, code, param) => {
    expect(refusal(dialect, body)).toEqual({ code, param });
  });
});
