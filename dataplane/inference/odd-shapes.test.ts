/**
 * Rule 7.13: a thing that must not pass is found by walking the value, wherever it stands, not by expecting the official
 * shape. Judged as every path judges: the look, the refusals, and whether the bytes may be relayed.
 */
import { describe, expect, test } from "vitest";
import { blocks, items, lookAt, tools } from "../../test/fakes/look-at.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";
import { ApiError } from "../lib/api-error.ts";
import { sealing } from "../lib/seal.ts";
import { SEALED_PREFIX } from "../dialects/reasoning.ts";
import { choosePath, pathNeeds } from "./request/choose-path.ts";
import { inspectBody } from "./inspect/body.ts";
import { refuse } from "./request/refuse.ts";

/** `code param`, or the path that the request takes to an upstream of its own dialect. */
function judge(dialect: Dialect, more: object): string {
  try {
    const inspected = lookAt(dialect, more);
    refuse(inspected);
    return choosePath(pathNeeds(inspected), dialect);
  } catch (error) {
    if (error instanceof ApiError) return `${error.code} ${error.param}`;
    throw error;
  }
}

const file = { type: "file", file_id: "file_1" };
const document = { type: "document", source: file };
const said = (content: unknown, role = "user") => ({ messages: [{ role, content }] });
const result = (content: unknown) => ({ type: "tool_result", tool_use_id: "t", content });
const sealer = sealing([{ id: "k1", key: Buffer.alloc(32) }])("org");
const hit = sealer.seal("a search result");
const reasoning = SEALED_PREFIX + sealer.seal("{}");

const cases: [Dialect, string, object, string][] = [
  // An object where a list belongs.
  ["messages", "content", said(document), "invalid_type messages.0.content"],
  [
    "messages",
    "a tool result's content",
    blocks(result(document)),
    "invalid_type messages.0.content.0.content",
  ],
  [
    "messages",
    "a document's content",
    blocks({ type: "document", source: { type: "content", content: document } }),
    "invalid_type messages.0.content.0.source.content",
  ],
  ["messages", "system", { system: document }, "invalid_type system"],
  ["messages", "tools", { tools: { type: "web_search_20250305" } }, "invalid_type tools"],
  ["messages", "a tool", { tools: [[{ type: "code_execution_20250522" }]] }, "invalid_type tools.0"],
  [
    "messages",
    "a tool's type",
    tools({ type: ["code_execution_20250522"], name: "a" }),
    "invalid_type tools.0.type",
  ],
  ["messages", "tool_choice", { tool_choice: [{ type: "tool" }] }, "invalid_type tool_choice"],
  ["messages", "messages", { messages: { role: "user", content: [document] } }, "invalid_type messages"],
  ["chat", "content", said({ type: "file", file }), "invalid_type messages[0].content"],
  ["chat", "tools", { tools: { type: "web_search" } }, "invalid_type tools"],
  ["chat", "a tool", { tools: ["web_search"] }, "invalid_type tools[0]"],
  [
    "chat",
    "allowed tools",
    { tool_choice: { type: "allowed_tools", allowed_tools: { tools: { type: "mcp" } } } },
    "invalid_type tool_choice.allowed_tools.tools",
  ],
  [
    "responses",
    "content",
    items({ role: "user", content: { type: "input_file", file_id: "f" } }),
    "invalid_type input[0].content",
  ],
  [
    "responses",
    "output",
    items({ type: "function_call_output", call_id: "c", output: { type: "input_image", file_id: "f" } }),
    "invalid_type input[0].output",
  ],
  ["responses", "tools", { tools: { type: "mcp" } }, "invalid_type tools"],
  [
    "responses",
    "nested tools",
    tools({ type: "namespace", name: "n", tools: { type: "mcp" } }),
    "invalid_type tools[0].tools",
  ],
  ["responses", "input", { input: { role: "user", content: "x" } }, "invalid_type input"],

  // Lists within lists, and items that are none.
  ["messages", "a list of lists", said([[document]]), "not_found messages.0.content.0.0.source.file_id"],
  [
    "messages",
    "a message that is a list",
    { messages: [[{ role: "user", content: [document] }]] },
    "not_found messages.0.0.content.0.source.file_id",
  ],
  [
    "messages",
    "a source that is a list",
    blocks({ type: "document", source: [file] }),
    "not_found messages.0.content.0.source.0.file_id",
  ],
  [
    "chat",
    "a list of lists",
    said([[{ type: "file", file }]]),
    "not_found messages[0].content[0][0].file.file_id",
  ],
  [
    "chat",
    "a file that is a list",
    said([{ type: "file", file: [file] }]),
    "not_found messages[0].content[0].file[0].file_id",
  ],
  [
    "responses",
    "an item that is a list",
    { input: [[{ type: "input_file", file_id: "f" }]] },
    "not_found input[0][0].file_id",
  ],
  [
    "responses",
    "a part that is a list",
    items({ role: "user", content: [[{ type: "input_file", file_id: "f" }]] }),
    "not_found input[0].content[0][0].file_id",
  ],

  // File ids anywhere.
  [
    "messages",
    "beside the source",
    blocks({ type: "document", file: { file_id: "f" } }),
    "not_found messages.0.content.0.file.file_id",
  ],
  [
    "messages",
    "deep in a source",
    blocks({ type: "document", source: { type: "x", inner: { list: [file] } } }),
    "not_found messages.0.content.0.source.inner.list.0.file_id",
  ],
  [
    "messages",
    "in an unknown field of a message",
    { messages: [{ role: "user", content: "x", attachments: [file] }] },
    "not_found messages.0.attachments.0.file_id",
  ],
  ["messages", "in an unknown field of the body", { attachments: [file] }, "not_found attachments.0.file_id"],
  [
    "messages",
    "an id that is a list",
    blocks({ type: "document", source: { type: "file", file_id: ["f"] } }),
    "not_found messages.0.content.0.source.file_id",
  ],
  [
    "messages",
    "an id in a nested object",
    blocks({ type: "document", source: { a: { file_id: { id: "f" } } } }),
    "not_found messages.0.content.0.source.a.file_id",
  ],
  [
    "messages",
    "an id that is a number",
    blocks({ type: "document", source: { type: "file", file_id: 5 } }),
    "invalid_type messages.0.content.0.source.file_id",
  ],
  [
    "chat",
    "an id that is a number",
    said([{ type: "file", file: { file_id: 5 } }]),
    "invalid_type messages[0].content[0].file.file_id",
  ],
  [
    "responses",
    "an id that is a switch",
    items({ role: "user", content: [{ type: "input_file", file_id: true }] }),
    "invalid_type input[0].content[0].file_id",
  ],
  ["responses", "an id in the body that is a number", { file_id: 5 }, "invalid_type file_id"],
  ["chat", "a number among ids", { file_ids: [5] }, "invalid_type file_ids[0]"],
  [
    "messages",
    "an id that is empty",
    blocks({ type: "document", source: { type: "file", file_id: "" } }),
    "not_found messages.0.content.0.source.file_id",
  ],
  [
    "messages",
    "in a tool",
    tools({ name: "a", input_schema: {}, file_ids: ["f"] }),
    "not_found tools.0.file_ids.0",
  ],
  [
    "messages",
    "in thinking",
    { thinking: { type: "adaptive", more: file } },
    "not_found thinking.more.file_id",
  ],
  [
    "chat",
    "in a message",
    { messages: [{ role: "user", content: "x", file_ids: ["f"] }] },
    "not_found messages[0].file_ids[0]",
  ],
  [
    "chat",
    "in a text part",
    said([{ type: "text", text: "x", annotations: [{ file_id: "f" }] }]),
    "not_found messages[0].content[0].annotations[0].file_id",
  ],
  ["chat", "in the body", { attachments: { file_id: "f" } }, "not_found attachments.file_id"],
  ["chat", "in the body itself", { file_id: "f" }, "not_found file_id"],
  [
    "responses",
    "in an item",
    items({ type: "message", role: "user", content: "x", files: [{ file_id: "f" }] }),
    "not_found input[0].files[0].file_id",
  ],
  [
    "responses",
    "in an image's address",
    items({ role: "user", content: [{ type: "input_image", image_url: { file_id: "f" } }] }),
    "not_found input[0].content[0].image_url.file_id",
  ],
  [
    "responses",
    "in the body",
    { attachments: [[[{ file_id: "f" }]]] },
    "not_found attachments[0][0][0].file_id",
  ],

  // Containers, items and audio of an upstream account.
  [
    "responses",
    "a container in an action",
    items({ type: "shell_call", action: { environment: { container_id: "c" } } }),
    "unsupported_parameter input[0].action.environment.container_id",
  ],
  [
    "responses",
    "a container in an annotation",
    items({
      role: "assistant",
      content: [{ type: "output_text", text: "x", annotations: [{ container_id: "c" }] }],
    }),
    "unsupported_parameter input[0].content[0].annotations[0].container_id",
  ],
  [
    "responses",
    "an item within content",
    items({ role: "user", content: [{ nested: { type: "item_reference", id: "i" } }] }),
    "unsupported_content input[0].content[0].nested",
  ],
  [
    "responses",
    "an item reference",
    items({ type: "item_reference", id: "i" }),
    "unsupported_parameter input[0]",
  ],

  // Hosted tools' blocks.
  [
    "messages",
    "in a document",
    blocks({ type: "document", source: { type: "content", content: [{ type: "mcp_tool_result" }] } }),
    "unsupported_content messages.0.content.0.source.content.0",
  ],
  [
    "messages",
    "in an unknown field",
    blocks({ type: "text", text: "x", extra: { type: "container_upload", id: 1 } }),
    "unsupported_content messages.0.content.0.extra",
  ],
  [
    "messages",
    "our own within a tool result",
    blocks(result([{ type: "web_search_tool_result", tool_use_id: "t", content: [] }])),
    "unsupported_content messages.0.content.0.content.0",
  ],
  [
    "messages",
    "our own in system",
    { system: [{ type: "server_tool_use", name: "web_search", id: "s", input: {} }] },
    "unsupported_content system.0",
  ],
  ["chat", "in content", said([{ type: "mcp_tool_use" }]), "unsupported_content messages[0].content[0]"],
  [
    "chat",
    "our own in content",
    said([{ type: "server_tool_use" }], "assistant"),
    "unsupported_content messages[0].content[0]",
  ],
  [
    "responses",
    "in content",
    items({ role: "user", content: [{ type: "mcp_call" }] }),
    "unsupported_content input[0].content[0]",
  ],
  [
    "responses",
    "in an item's field",
    items({ role: "user", content: "x", calls: [{ type: "code_interpreter_call" }] }),
    "unsupported_content input[0].calls[0]",
  ],

  // Blobs that the gateway sealed.
  [
    "messages",
    "a hit in a tool result",
    blocks(result([{ type: "text", text: "x", encrypted_content: hit }])),
    "convert",
  ],
  [
    "messages",
    "a hit in a message",
    { messages: [{ role: "user", content: "x", encrypted_content: hit }] },
    "invalid_request_error messages.0.encrypted_content",
  ],
  [
    "messages",
    "an index in a tool result",
    blocks(result([{ type: "text", text: "x", citations: [{ type: "y", encrypted_index: hit }] }])),
    "invalid_request_error messages.0.content.0.content.0.citations.0.encrypted_index",
  ],
  [
    "messages",
    "an index in an odd place",
    { extra: [{ encrypted_index: hit }] },
    "invalid_request_error extra.0.encrypted_index",
  ],
  [
    "messages",
    "an index where it belongs",
    said([{ type: "text", text: "x", citations: [{ type: "y", encrypted_index: hit }] }], "assistant"),
    "convert",
  ],
  [
    "messages",
    "reasoning",
    said([{ type: "thinking", thinking: "", signature: reasoning }], "assistant"),
    "relay",
  ],
  [
    "responses",
    "reasoning",
    items({ type: "reasoning", encrypted_content: reasoning, summary: [] }),
    "relay",
  ],
  [
    "responses",
    "reasoning in an odd place",
    { extra: { encrypted_content: reasoning } },
    "invalid_request_error extra.encrypted_content",
  ],
  [
    "messages",
    "a provider's compaction",
    said([{ type: "compaction", content: "x", encrypted_content: "EqgfCioIARgC" }], "assistant"),
    "relay",
  ],
  [
    "responses",
    "a provider's reasoning",
    items({ type: "reasoning", encrypted_content: "gAAAAABo", summary: [] }),
    "relay",
  ],
];
test.each(cases)("%s: %s", (dialect, _, more, expected) => {
  expect(judge(dialect, more)).toBe(expected);
});

const own = {
  file_id: "f",
  container_id: "c",
  type: "mcp_call",
  encrypted_content: reasoning.slice(0, 4),
  nested: [{ type: "server_tool_use", file_ids: ["f"] }],
};
describe("what is the client's own affair may be called anything", () => {
  test.each(dialects)("%s: metadata", (dialect) => {
    expect(judge(dialect, { metadata: own })).toBe("relay");
  });
  const schema = {
    type: "object",
    properties: { file_id: { type: "string" }, container_id: {} },
    default: own,
  };
  test.each<[Dialect, string, object]>([
    ["messages", "an input", said([{ type: "tool_use", id: "t", name: "n", input: own }], "assistant")],
    ["messages", "a schema", tools({ name: "a", input_schema: schema, input_examples: [own] })],
    ["messages", "a format", { output_config: { format: { type: "json_schema", schema } } }],
    ["chat", "parameters", tools({ type: "function", function: { name: "a", parameters: schema } })],
    ["chat", "a format", { response_format: { type: "json_schema", json_schema: { name: "s", schema } } }],
    ["chat", "older functions", { functions: [{ name: "a", parameters: schema }] }],
    [
      "chat",
      "arguments",
      {
        messages: [
          {
            role: "assistant",
            tool_calls: [{ id: "c", type: "function", function: { name: "a", arguments: own } }],
          },
        ],
      },
    ],
    ["responses", "parameters", tools({ type: "function", name: "a", parameters: schema })],
    ["responses", "a format", { text: { format: { type: "json_schema", name: "s", schema } } }],
    ["responses", "arguments", items({ type: "function_call", call_id: "c", name: "a", arguments: own })],
    [
      "responses",
      "an environment",
      items({ type: "local_shell_call", call_id: "c", action: { type: "exec", command: ["ls"], env: own } }),
    ],
  ])("%s: %s", (dialect, _, more) => {
    expect(judge(dialect, more)).toBe("relay");
  });
  test.each<[Dialect, object]>([
    [
      "messages",
      said([{ type: "text", text: "x", citations: [{ type: "char_location", file_id: null }] }], "assistant"),
    ],
    ["messages", { container: null, attachments: null }],
    ["messages", said([{ type: "text", text: "x", citations: { enabled: true } }])],
    ["chat", { messages: [{ role: "assistant", content: null, audio: null }] }],
  ])("%s: null and switches: %j", (dialect, more) => {
    expect(judge(dialect, more)).toBe("relay");
  });
});

test("an escaped blob is the same blob", () => {
  const escaped = (body: object) =>
    Buffer.from(JSON.stringify(body).replaceAll(SEALED_PREFIX, String.raw`\u0067apura\u005fr1_`));
  const body = {
    ...said([{ type: "thinking", thinking: "", signature: reasoning }], "assistant"),
    model: "m",
  };
  expect(escaped(body).includes(SEALED_PREFIX)).toBe(false);
  const inspected = inspectBody("messages", escaped(body));
  expect(inspected.content.reasoningBlobs).toHaveLength(1);
  const stray = inspectBody.bind(
    null,
    "responses",
    escaped({ model: "m", input: "x", extra: { encrypted_content: reasoning } }),
  );
  expect(stray).toThrow(/extra\.encrypted_content/);
});

test("a key as long as the body does not come back with every path", () => {
  const inspected = lookAt("chat", {
    ["k".repeat(100_000)]: Array.from({ length: 100 }, () => ({ file_id: "f" })),
  });
  expect(inspected.content.references).toHaveLength(100);
  expect(JSON.stringify(inspected.content.references).length).toBeLessThan(30_000);
  expect(judge("chat", { ["k".repeat(100_000)]: { file_id: "f" } })).toBe(
    `not_found ${"k".repeat(60)}.file_id`,
  );
});
