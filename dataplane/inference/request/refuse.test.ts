import { describe, expect, test } from "vitest";
import { routeTo, upstreamOf } from "../../../test/fakes/inference.ts";
import { blocks, items, lookAt, tools } from "../../../test/fakes/look-at.ts";
import type { Policy } from "../../config/schema.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { ApiError } from "../../lib/api-error.ts";
import { inspectBody } from "../inspect/body.ts";
import { checkMedia, checkPricedMedia, checkServerTools, declaredServerTools, refuse } from "./refuse.ts";

const escapedWholly = (text: string): string =>
  Array.from(text, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

/** `code param` of the refusal; null when there is none. */
function refusalOf(dialect: Dialect, more: object): string | null {
  try {
    refuse(lookAt(dialect, more));
    return null;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return `${error.code} ${error.param}`;
  }
}

/** A conversation whose second turn brings a tool of its own. */
const toolInTurn = (definition: unknown) => ({
  messages: [
    { role: "user", content: "hi" },
    { role: "system", content: [{ type: "tool_addition", tool: { type: "tool_definition", definition } }] },
  ],
});
const chatFunction = { type: "function", function: { name: "f" } };
const chosen = (name: string) => ({ type: "tool", name });
const allowed = (...list: object[]) => ({ type: "allowed_tools", mode: "required", tools: list });
const chatAllowed = (...list: object[]) => ({
  type: "allowed_tools",
  allowed_tools: { mode: "auto", tools: list },
});

const refusals: [Dialect, object, string][] = [
  // Stateful and planned fields.
  ["messages", { container: { skills: [] } }, "unsupported_parameter container"],
  ["messages", { container: "container_1" }, "unsupported_parameter container"],
  ["messages", { mcp_servers: [{ url: "https://x" }] }, "unsupported_parameter mcp_servers"],
  ["chat", { container: "container_1" }, "unsupported_parameter container"],
  ["chat", { mcp_servers: [{ url: "https://x" }] }, "unsupported_parameter mcp_servers"],
  ["responses", { container: "container_1" }, "unsupported_parameter container"],
  ["responses", { mcp_servers: [{ url: "https://x" }] }, "unsupported_parameter mcp_servers"],
  ["messages", { thread: { type: "create" } }, "thread_unsupported thread"],
  ["responses", { previous_response_id: "resp_1" }, "unsupported_parameter previous_response_id"],
  ["responses", { conversation: { id: "conv_1" } }, "unsupported_parameter conversation"],
  ["responses", { prompt: { id: "pmpt_1" } }, "unsupported_parameter prompt"],
  ["responses", { background: true }, "unsupported_parameter background"],
  // Hosted tools.
  [
    "messages",
    tools({ name: "a", input_schema: {} }, { type: "code_execution_20250825", name: "c" }),
    "unsupported_tool tools.1.type",
  ],
  ["messages", tools({ type: "web_search_20990101", name: "web_search" }), "unsupported_tool tools.0.type"],
  ["messages", tools({ type: "web_fetch_20250305", name: "web_fetch" }), "unsupported_tool tools.0.type"],
  ["messages", tools({ type: "mcp_toolset", mcp_server_name: "x" }), "unsupported_tool tools.0.type"],
  [
    "messages",
    tools({ type: "tool_search_tool_regex_20251119", name: "t" }),
    "unsupported_tool tools.0.type",
  ],
  // Whoever runs them, a tool loop knows only those of `tools`.
  ...[
    { type: "code_execution_20250825", name: "code_execution" },
    { type: "advisor_20260301", name: "advisor", model: "claude-opus-5-5" },
    { type: "mcp_toolset", mcp_server_name: "x" },
    { type: "web_search_20250305", name: "web_search" },
    { type: "x_search_20261005", name: "x_search" },
  ].map((definition): [Dialect, object, string] => [
    "messages",
    toolInTurn(definition),
    "unsupported_tool messages.1.content.0.tool.definition.type",
  ]),
  // Rule 7.13: an upstream may be kinder to an odd shape.
  [
    "messages",
    blocks({ type: "tool_addition", tool: { type: "web_search_20250305", name: "web_search" } }),
    "unsupported_tool messages.0.content.0.tool.type",
  ],
  ["messages", toolInTurn([]), "invalid_type messages.1.content.0.tool.definition"],
  [
    "messages",
    blocks({ type: "tool_addition", tool: [{ type: "web_search_20250305", name: "web_search" }] }),
    "invalid_type messages.0.content.0.tool",
  ],
  [
    "messages",
    blocks({
      type: "compaction",
      content: "c",
      tool_changes: {
        type: "tool_addition",
        tool: { type: "tool_definition", definition: { type: "advisor_20260301" } },
      },
    }),
    "invalid_type messages.0.content.0.tool_changes",
  ],
  [
    "messages",
    {
      ...toolInTurn({ name: "web_search", input_schema: {} }),
      ...tools({ type: "web_search_20250305", name: "web_search" }),
    },
    "invalid_request_error messages.1.content.0.tool.definition.name",
  ],
  [
    "messages",
    blocks({
      type: "compaction",
      content: "c",
      tool_changes: [
        {
          type: "tool_addition",
          tool: { type: "tool_definition", definition: { type: "advisor_20260301" } },
        },
      ],
    }),
    "unsupported_tool messages.0.content.0.tool_changes.0.tool.definition.type",
  ],
  ["messages", tools({ type: "__proto__", name: "t" }), "unsupported_tool tools.0.type"],
  [
    "chat",
    tools({ type: "function", function: { name: "f" } }, { type: "web_search" }),
    "unsupported_tool tools[1].type",
  ],
  ["responses", tools({ type: "file_search", vector_store_ids: ["vs_1"] }), "unsupported_tool tools[0].type"],
  ["responses", tools({ type: "code_interpreter", container: "cntr_1" }), "unsupported_tool tools[0].type"],
  ["responses", tools({ type: "image_generation" }), "unsupported_tool tools[0].type"],
  ["responses", tools({ type: "computer_use_preview" }), "unsupported_tool tools[0].type"],
  ["responses", tools({ type: "mcp", server_url: "https://x" }), "unsupported_tool tools[0].type"],
  ["responses", tools({ type: "web_search_preview_2025_03_11" }), "unsupported_tool tools[0].type"],
  [
    "responses",
    tools({ type: "shell", environment: { type: "container_auto" } }),
    "unsupported_tool tools[0].type",
  ],
  [
    "responses",
    tools({ type: "namespace", name: "n", tools: [{ type: "function" }, { type: "mcp" }] }),
    "unsupported_tool tools[0].tools[1].type",
  ],
  [
    "responses",
    items({ type: "additional_tools", tools: [{ type: "mcp" }] }),
    "unsupported_tool input[0].tools[0].type",
  ],
  ["responses", tools({ type: "tool_search" }), "unsupported_tool tools[0].type"],
  ["responses", tools({ type: "tool_search", execution: "server" }), "unsupported_tool tools[0].type"],
  ["responses", tools({ type: "file_search", execution: "client" }), "unsupported_tool tools[0].type"],
  ["responses", { max_tool_calls: 0 }, "invalid_request_error max_tool_calls"],
  ["responses", { max_tool_calls: 1.5 }, "invalid_request_error max_tool_calls"],
  ["responses", { max_tool_calls: "3" }, "invalid_request_error max_tool_calls"],
  ["responses", { tool_choice: { type: "web_search" } }, "unsupported_tool tool_choice"],
  ["responses", { tool_choice: { type: "file_search" } }, "unsupported_tool tool_choice"],
  ["responses", { tool_choice: { type: "of_the_future" } }, "unsupported_tool tool_choice"],
  ["responses", { tool_choice: "web_search" }, "unsupported_tool tool_choice"],
  ["responses", { tool_choice: "code_interpreter" }, "unsupported_tool tool_choice"],
  [
    "responses",
    { tool_choice: { type: "web_search" }, tools: [{ type: "x_search" }] },
    "invalid_request_error tool_choice",
  ],
  ["messages", { tool_choice: chosen("x_search") }, "unsupported_tool tool_choice"],
  ["messages", { ...tools({ name: "f" }), tool_choice: chosen("x_search") }, "unsupported_tool tool_choice"],
  [
    "messages",
    { ...tools({ type: "web_search_20250305", name: "web_search" }), tool_choice: chosen("x_search") },
    "invalid_request_error tool_choice",
  ],
  [
    "chat",
    { tool_choice: { type: "x_search" }, web_search_options: {} },
    "invalid_request_error tool_choice",
  ],
  ["chat", { tool_choice: { type: "web_search" } }, "unsupported_tool tool_choice"],
  ["chat", { tool_choice: { type: "web_search_preview" } }, "unsupported_tool tool_choice"],
  ["chat", { tool_choice: { type: "web_search_2025_08_26" } }, "unsupported_tool tool_choice"],
  ["chat", { tool_choice: { type: "file_search" } }, "unsupported_tool tool_choice"],
  ["chat", { tool_choice: { type: "computer_use_preview" } }, "unsupported_tool tool_choice"],
  [
    "chat",
    { ...tools(chatFunction), tool_choice: { type: "mcp", server_label: "x" } },
    "unsupported_tool tool_choice",
  ],
  [
    "chat",
    { ...tools(chatFunction), tool_choice: chatAllowed(chatFunction, { type: "web_search" }) },
    "unsupported_tool tool_choice",
  ],
  ["responses", { ...tools(), tool_choice: allowed({ type: "web_search" }) }, "unsupported_tool tool_choice"],
  [
    "responses",
    { ...tools({ type: "function", name: "f" }), tool_choice: allowed({ type: "web_search" }) },
    "unsupported_tool tool_choice",
  ],
  [
    "responses",
    {
      ...tools({ type: "function", name: "f" }),
      tool_choice: allowed({ type: "function", name: "f" }, { type: "mcp", server_label: "x" }),
    },
    "unsupported_tool tool_choice",
  ],
  [
    "responses",
    {
      ...tools({ type: "web_search", external_web_access: false }),
      tool_choice: allowed({ type: "web_search" }),
    },
    "unsupported_tool tool_choice",
  ],
  [
    "responses",
    { ...tools({ type: "x_search" }), tool_choice: allowed({ type: "web_search" }) },
    "invalid_request_error tool_choice",
  ],
  // Foreign objects.
  [
    "messages",
    blocks({ type: "text", text: "x" }, { type: "image", source: { type: "file", file_id: "file_1" } }),
    "not_found messages.0.content.1.source.file_id",
  ],
  [
    "messages",
    blocks({
      type: "tool_result",
      tool_use_id: "t",
      content: [{ type: "document", source: { type: "file", file_id: "file_1" } }],
    }),
    "not_found messages.0.content.0.content.0.source.file_id",
  ],
  [
    "messages",
    blocks({
      type: "document",
      source: { type: "content", content: [{ type: "image", source: { type: "file", file_id: "f" } }] },
    }),
    "not_found messages.0.content.0.source.content.0.source.file_id",
  ],
  [
    "messages",
    { system: [{ type: "document", source: { type: "file", file_id: "f" } }] },
    "not_found system.0.source.file_id",
  ],
  [
    "messages",
    blocks({ type: "container_upload", file_id: "file_1" }),
    "unsupported_content messages.0.content.0",
  ],
  [
    "messages",
    blocks({ type: "mcp_tool_use", id: "x", name: "y", input: {} }),
    "unsupported_content messages.0.content.0",
  ],
  [
    "messages",
    blocks({ type: "bash_code_execution_tool_result", tool_use_id: "x" }),
    "unsupported_content messages.0.content.0",
  ],
  [
    "messages",
    blocks({ type: "server_tool_use", id: "x", name: "code_execution", input: {} }),
    "unsupported_content messages.0.content.0",
  ],
  [
    "chat",
    blocks({ type: "file", file: { file_id: "file-1" } }),
    "not_found messages[0].content[0].file.file_id",
  ],
  [
    "chat",
    { messages: [{ role: "assistant", audio: { id: "audio_1" } }] },
    "unsupported_parameter messages[0].audio",
  ],
  [
    "responses",
    items({ role: "user", content: [{ type: "input_file", file_id: "file_1" }] }),
    "not_found input[0].content[0].file_id",
  ],
  [
    "responses",
    items({ role: "user", content: [{ type: "input_image", file_id: "file_1" }] }),
    "not_found input[0].content[0].file_id",
  ],
  [
    "responses",
    items({ type: "function_call_output", call_id: "c", output: [{ type: "input_file", file_id: "f" }] }),
    "not_found input[0].output[0].file_id",
  ],
  ["responses", items({ type: "item_reference", id: "msg_1" }), "unsupported_parameter input[0]"],
  ["responses", items({ id: "msg_1" }), "unsupported_parameter input[0]"],
  ["responses", items({ type: null, id: "msg_1" }), "unsupported_parameter input[0]"],
  ["responses", items({ type: "code_interpreter_call", container_id: "c" }), "unsupported_content input[0]"],
  // Its output is an object, before its type or after it; another item's has to be a list.
  [
    "responses",
    items({ output: { type: "computer_screenshot", file_id: "f" }, type: "computer_call_output" }),
    "unsupported_content input[0]",
  ],
  ["responses", items({ type: "computer_call_output", output: {} }), "unsupported_content input[0]"],
  ["responses", items({ type: "function_call_output", output: {} }), "invalid_type input[0].output"],
  ["responses", items({ type: "file_search_call", id: "c" }), "unsupported_content input[0]"],
  ["responses", items({ type: "mcp_approval_response", id: "c" }), "unsupported_content input[0]"],
  [
    "responses",
    items({ type: "shell_call", container_id: "c" }),
    "unsupported_parameter input[0].container_id",
  ],
  ["responses", items({ type: "web_search_call", id: "ws_1" }), "invalid_request_error input[0]"],
  [
    "responses",
    { ...items({ type: "web_search_call" }), tools: [{ type: "x_search" }] },
    "invalid_request_error input[0]",
  ],
  [
    "responses",
    { ...items({ type: "x_search_call" }), tools: [{ type: "web_search", external_web_access: false }] },
    "invalid_request_error input[0]",
  ],
];

test.each(refusals)("rules 2.10, 2.11, 3.3: %s %j is refused", (dialect, more, expected) => {
  expect(refusalOf(dialect, more)).toBe(expected);
});

const harmless: [Dialect, object][] = [
  // Codex, whose session has searched and now may not go online any more.
  [
    "responses",
    { ...items({ type: "web_search_call" }), tools: [{ type: "web_search", external_web_access: false }] },
  ],
  ["messages", { container: null, mcp_servers: null, thread: null }],
  ["messages", { mcp_servers: [] }],
  ["chat", { container: null, mcp_servers: [] }],
  ["responses", { container: null, mcp_servers: [] }],
  [
    "messages",
    tools({
      name: "f",
      input_schema: { properties: { file_id: { type: "string" }, tools: [{ type: "mcp" }] } },
    }),
  ],
  [
    "messages",
    tools(
      { type: "bash_20250124", name: "bash" },
      { type: "custom", name: "c" },
      { type: "memory_20250818", name: "memory" },
      { type: "computer_20251124", name: "computer" },
    ),
  ],
  // Sets of tools that the client runs; each member is called by its own name.
  ["messages", tools({ type: "computer_toolset_20260801" }, { type: "browser_toolset_20260801" })],
  ["messages", toolInTurn({ name: "f", input_schema: { type: "object" } })],
  ["messages", toolInTurn(null)],
  [
    "messages",
    {
      messages: [
        { role: "user", content: "hi" },
        {
          role: "system",
          content: [{ type: "tool_addition", tool: { type: "tool_reference", name: "f" } }],
        },
      ],
    },
  ],
  [
    "messages",
    blocks({ type: "tool_use", id: "t", name: "f", input: { file_id: "mine", source: { type: "file" } } }),
  ],
  ["messages", { unknown_field: { container: 1, previous_response_id: "x" }, metadata: { user_id: "u" } }],
  ["chat", { previous_response_id: "x", store: true, tools: [{ type: "custom", custom: { name: "c" } }] }],
  ["chat", { messages: [{ role: "assistant", audio: null, content: null }] }],
  ["responses", { previous_response_id: null, background: false, conversation: null, prompt: null }],
  [
    "responses",
    items(
      { type: "function_call", call_id: "c", name: "f", arguments: '{"file_id":"x"}' },
      { type: "reasoning", id: "rs", summary: [], encrypted_content: "x" },
    ),
  ],
  [
    "responses",
    items({ role: "user", content: "hi" }, { type: "message", role: "assistant", id: "msg_1", content: [] }),
  ],
  [
    "responses",
    tools(
      { type: "function", name: "f" },
      { type: "shell", environment: { type: "local" } },
      { type: "local_shell" },
      { type: "namespace", name: "n", tools: [{ type: "function", name: "g" }] },
      { type: "tool_search", execution: "client", parameters: {} },
    ),
  ],
  ["responses", { max_tool_calls: null }],
  ["responses", { max_tool_calls: 3 }],
  ["responses", { tool_choice: { type: "function", name: "f" } }],
  ["messages", { tool_choice: chosen("f") }],
  ["messages", { tool_choice: { type: "any", name: "x_search" } }],
  ["messages", { ...tools({ name: "x_search" }), tool_choice: chosen("x_search") }],
  ["messages", { ...tools({ type: "custom", name: "x_search" }), tool_choice: chosen("x_search") }],
  [
    "messages",
    { ...tools({ type: "x_search_20261005", name: "x_search" }), tool_choice: chosen("x_search") },
  ],
  ["chat", { tool_choice: "required" }],
  // A word that no tool has is a wrong value, which the reader of the request tells.
  ["chat", { tool_choice: "zz" }],
  ["responses", { tool_choice: "zz" }],
  ["chat", { ...tools(chatFunction), tool_choice: chatFunction }],
  ["chat", { tool_choice: { type: "custom", custom: { name: "web_search" } } }],
  ["chat", { ...tools(chatFunction), tool_choice: chatAllowed(chatFunction) }],
  ["chat", { ...tools(chatFunction), tool_choice: { type: "of_the_future", tools: [chatFunction] } }],
  ["chat", { tool_choice: { type: "web_search" }, web_search_options: {} }],
  [
    "responses",
    { ...tools({ type: "function", name: "f" }), tool_choice: allowed({ type: "function", name: "f" }) },
  ],
  [
    "responses",
    {
      ...tools({ type: "web_search" }, { type: "namespace", name: "n", tools: [] }),
      tool_choice: allowed({ type: "web_search_preview" }, { type: "namespace", name: "n" }),
    },
  ],
  [
    "responses",
    {
      ...tools({ type: "tool_search", execution: "client", parameters: {} }),
      tool_choice: allowed({ type: "tool_search" }),
    },
  ],
  ["responses", { tool_choice: { type: "web_search" }, tools: [{ type: "web_search_preview" }] }],
  ["responses", { ...items({ type: "web_search_call" }), tools: [{ type: "web_search" }] }],
];
test.each(harmless)("%s %j is nobody's business here", (dialect, more) => {
  expect(refusalOf(dialect, more)).toBeNull();
});

test.each([
  [{ type: "computer_use_preview", environment: "browser" }, '"computer_use_preview" is not supported here'],
  [{ type: "code_interpreter", container: { type: "auto" } }, '"code_interpreter" is not supported here'],
  [{ type: "shell", environment: { type: "container_auto" } }, "hosted containers are not available"],
])("a hosted tool is refused for what is not offered of it: %j", (tool, reason) => {
  expect(() => refuse(lookAt("responses", tools(tool)))).toThrow(`tools[0].type: ${reason}`);
});

test("rule 2.16: `thread` gets the details on which the SDKs fall back to whole histories", () => {
  expect(() => refuse(lookAt("messages", { thread: { type: "create" } }))).toThrow(
    expect.objectContaining({ details: { unsupported: ["thread"] } }),
  );
});

describe("rule 2.3: images and PDF for a model without the capability, on every path", () => {
  const image = { type: "base64", media_type: "image/png", data: "AA==" };
  const pdf = { type: "base64", media_type: "application/pdf", data: "JVBERi0=" };
  const text = { type: "text", media_type: "text/plain", data: "x" };
  const pdfUrl = "data:application/pdf;base64,JVBERi0=";
  const pngUrl = "data:image/png;base64,AA==";
  const said = (...content: object[]) => items({ role: "user", content });
  const rows: [Dialect, object, string | null][] = [
    [
      "messages",
      blocks({ type: "text", text: "x" }, { type: "image", source: image }),
      "messages.0.content.1",
    ],
    [
      "messages",
      blocks({ type: "tool_result", tool_use_id: "t", content: [{ type: "image", source: image }] }),
      "messages.0.content.0.content.0",
    ],
    ["messages", blocks({ type: "document", source: pdf }), "messages.0.content.0"],
    [
      "messages",
      blocks({ type: "document", source: { type: "url", url: "https://x/" } }),
      "messages.0.content.0",
    ],
    ["messages", blocks({ type: "document", source: text }), null],
    ["chat", blocks({ type: "image_url", image_url: { url: "https://x/" } }), "messages[0].content[0]"],
    ["chat", blocks({ type: "file", file: { file_data: pdfUrl } }), "messages[0].content[0]"],
    ["chat", blocks({ type: "file", file: { file_data: "JVBERi0=" } }), "messages[0].content[0]"],
    ["chat", blocks({ type: "file", file: { file_data: "data:text/plain;base64,eA==" } }), null],
    ["chat", blocks({ type: "file", file: { file_data: pngUrl } }), "messages[0].content[0]"],
    [
      "chat",
      blocks({ type: "file", file: { file_data: "DATA:Image/PNG;base64,AA==" } }),
      "messages[0].content[0]",
    ],
    ["responses", said({ type: "input_image", image_url: "https://x/" }), "input[0].content[0]"],
    ["responses", said({ type: "input_file", file_data: pdfUrl }), "input[0].content[0]"],
    ["responses", said({ type: "input_file", file_data: pngUrl }), "input[0].content[0]"],
    ["responses", said({ type: "input_file", file_data: "data:text/plain;base64,eA==" }), null],
    ["responses", said({ type: "input_file", file_url: "https://x/a.pdf" }), "input[0].content[0]"],
    [
      "responses",
      said({ type: "input_file", file_url: "https://x/", file_data: "data:text/plain;base64,eA==" }),
      "input[0].content[0]",
    ],
    [
      "responses",
      said({ type: "input_file", file_url: null, file_data: "data:text/plain;base64,eA==" }),
      null,
    ],
    [
      "responses",
      items({
        type: "function_call_output",
        call_id: "c",
        output: [{ type: "input_image", image_url: "https://x/" }],
      }),
      "input[0].output[0]",
    ],
  ];
  const able = routeTo([]).capabilities;
  test.each(rows)("%s %j", (dialect, more, param) => {
    const blind = routeTo([], { capabilities: { ...able, imageInput: false, pdfInput: false } });
    const check = () => checkMedia(lookAt(dialect, more), blind);
    if (param === null) expect(check).not.toThrow();
    else expect(check).toThrow(expect.objectContaining({ code: "unsupported_content", param }));
    expect(() => checkMedia(lookAt(dialect, more), routeTo([]))).not.toThrow();
  });

  test.each([
    ["a letter escaped", String.raw`{"file_data":"\u0064ata:application/pdf;base64,JVBERi0="}`],
    ["bare, a letter escaped", String.raw`{"file_data":"\u004aVBERi0="}`],
    ["every character escaped", `{"file_data":"${escapedWholly(pdfUrl)}"}`],
    ["another one behind it", `{"file_data":"${pdfUrl}","data":"x"}`],
    ["an image's address behind it", `{"file_data":"${pdfUrl}"},"image_url":"https://x/"`],
  ])("a PDF is one however it is written: %s", (_, written) => {
    const look = inspectBody(
      "chat",
      Buffer.from(`{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":${written}}]}]}`),
    );
    expect(() => checkMedia(look, routeTo([], { capabilities: { ...able, pdfInput: false } }))).toThrow(
      expect.objectContaining({ code: "unsupported_content", param: "messages[0].content[0]" }),
    );
  });

  test("a PDF whose data URL has escaped slashes, as PHP writes them", () => {
    const body = JSON.stringify({
      model: "m",
      messages: [{ role: "user", content: [{ type: "file", file: { file_data: pdfUrl } }] }],
    }).replaceAll("/", "\\/");
    const look = inspectBody("chat", Buffer.from(body));
    expect(() => checkMedia(look, routeTo([], { capabilities: { ...able, pdfInput: false } }))).toThrow(
      expect.objectContaining({ code: "unsupported_content", param: "messages[0].content[0]" }),
    );
  });
});

test.each<[Dialect, object]>([
  ["chat", blocks({ type: "file", file: { file_data: "data:audio/wav;base64,AA==", filename: "a.wav" } })],
  [
    "responses",
    items({ role: "user", content: [{ type: "input_file", file_data: "data:audio/wav;base64,AA==" }] }),
  ],
])("rule 10.5: a file of audio is audio: %s", (dialect, more) => {
  expect(() => checkPricedMedia(lookAt(dialect, more), routeTo([]).prices)).toThrow(
    expect.objectContaining({ code: "unsupported_content" }),
  );
});

describe("server tools that cannot run", () => {
  const route = routeTo([upstreamOf("http://x", "messages")]);
  const deaf = routeTo([upstreamOf("http://x", "messages")], {
    capabilities: { ...route.capabilities, toolCalling: false },
  });
  const policy = {
    webSearch: { engine: { type: "searxng", baseUrl: "http://s", credential: null }, timeoutMs: 1 },
    webFetch: null,
    xSearch: { engine: null, timeoutMs: 1 },
  } as unknown as Policy;
  const search = tools({ type: "web_search_20250305", name: "web_search" });
  const fetch = tools({ type: "web_fetch_20250910", name: "web_fetch" });
  const xSearch = tools({ type: "x_search_20261005", name: "x_search" });

  test.each([
    ["messages", search, route, policy, null],
    ["messages", search, route, undefined, "unsupported_tool tools.0.type"],
    ["messages", fetch, route, policy, "unsupported_tool tools.0.type"],
    ["messages", xSearch, route, policy, "unsupported_tool tools.0.type"],
    ["messages", search, deaf, policy, "unsupported_content tools.0.type"],
    ["chat", { web_search_options: {} }, route, policy, null],
    ["chat", { web_search_options: {} }, route, undefined, "unsupported_parameter web_search_options"],
    ["chat", {}, deaf, undefined, null],
  ] as const)("%s %j", (dialect, more, on, under, expected) => {
    let seen: string | null = null;
    try {
      checkServerTools(lookAt(dialect, more), on, under);
    } catch (error) {
      seen = error instanceof ApiError ? `${error.code} ${error.param}` : String(error);
    }
    expect(seen).toBe(expected);
  });

  test("declared ones are named by the path of their first entry", () => {
    const inspected = lookAt("messages", { tools: [...search.tools, ...fetch.tools] });
    expect([...declaredServerTools(inspected)]).toEqual([
      ["web_search", "tools.0.type"],
      ["web_fetch", "tools.1.type"],
    ]);
  });
});

test.each<[Dialect, object]>([
  ["messages", { tools: [{ type: `web_search_${"\n".repeat(1e7)}`, name: "web_search" }] }],
  ["responses", { tool_choice: { type: `web_search_${"\n".repeat(1e7)}` } }],
  [
    "responses",
    items({ role: "user", content: [{ type: "input_file", file_id: `file-${"\n".repeat(1e7)}` }] }),
  ],
])("rule 7.3: what a refusal repeats of a %s request is no longer than a page", (dialect, more) => {
  const told = () => refuse(lookAt(dialect, more));
  expect(told).toThrow(ApiError);
  expect(told).toThrow(
    expect.objectContaining({ message: expect.stringMatching(/^[^]{1,4000}$/) as unknown }),
  );
});
