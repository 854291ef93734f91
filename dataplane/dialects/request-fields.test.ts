/** Holds the field table against the official SDKs' request types, and the generated page against the table. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Dialect, dialects } from "./dialect.ts";
import { dialectsPage } from "./dialects-page.ts";
import { priceEffect, priceEffects, pricedBetas } from "./price-effects.ts";
import { fields } from "./request-fields.ts";

const root = join(import.meta.dirname, "../..");
const sources = {
  messages: "node_modules/@anthropic-ai/sdk/resources/messages/messages.d.ts",
  betaMessages: "node_modules/@anthropic-ai/sdk/resources/beta/messages/messages.d.ts",
  chat: "node_modules/openai/resources/chat/completions/completions.d.ts",
  responses: "node_modules/openai/resources/responses/responses.d.ts",
  betaResponses: "node_modules/openai/resources/beta/responses/responses.d.ts",
  openaiShared: "node_modules/openai/resources/shared.d.ts",
} as const;

/** Names of the fields that an interface of a type declaration file has itself. */
function fieldsOf(source: keyof typeof sources, type: string): string[] {
  const text = readFileSync(join(root, sources[source]), "utf8");
  const declaration = new RegExp(`^( *)(?:export )?interface ${type}(?: extends [^{]*)? \\{$`, "m").exec(
    text,
  );
  if (declaration === null) throw new Error(`${sources[source]} has no interface ${type}`);
  const indent = declaration[1] ?? "";
  const rest = text.slice(declaration.index + declaration[0].length);
  const body = rest.slice(0, rest.indexOf(`\n${indent}}`));
  const field = new RegExp(`^${indent}    (?:readonly )?(\\w+)\\??:`, "gm");
  return Array.from(body.matchAll(field), (match) => match[1] ?? "");
}

/** Betas whose tokens tell it all, or whose fields are judged by themselves. */
const freeBetas = `
  admin-user-sign-out- advisor-tool- agent-memory- analytics-usage-cost-
  cache-diagnosis- ce-claude-code-managed-settings- ce-plugins- ce-user-management-
  code-execution- compact- computer-use- context-management-
  dev-full-thinking- dreaming- experimental-claude-tag- extended-cache-ttl-
  fallback-credit- files-api- inline-tools- interleaved-thinking-
  managed-agents- mcp-client- mcp-tunnels- message-batches-
  message-threads- mid-conversation-output-config- mid-conversation-system-clear-at- mid-conversation-tool-changes-
  model-context-window-exceeded- output-128k- output-300k- pdfs-
  prompt-caching- server-side-fallback- skills- spend-limit-reads-
  structured-outputs- task-budgets- telemetry-destinations- thinking-binding-controls-
  thinking-display-updates- thinking-token-count- token-counting- token-efficient-tools-
  user-profiles- user-profiles-billing- webhooks-
`
  .trim()
  .split(/\s+/);

interface Row {
  readonly dialect: Dialect;
  readonly source: keyof typeof sources;
  readonly type: string;
  /** Where the type stands in a request; empty: it is the request. */
  readonly at: string;
}

const types: readonly Row[] = [
  { dialect: "messages", source: "messages", type: "MessageCreateParamsBase", at: "" },
  { dialect: "messages", source: "betaMessages", type: "MessageCreateParamsBase", at: "" },
  { dialect: "messages", source: "messages", type: "OutputConfig", at: "output_config" },
  { dialect: "messages", source: "betaMessages", type: "BetaOutputConfig", at: "output_config" },
  { dialect: "messages", source: "messages", type: "Metadata", at: "metadata" },
  {
    dialect: "messages",
    source: "messages",
    type: "ThinkingConfigEnabled",
    at: "thinking",
  },
  { dialect: "messages", source: "messages", type: "ThinkingConfigAdaptive", at: "thinking" },
  {
    dialect: "messages",
    source: "messages",
    type: "Tool",
    at: "tools",
  },
  {
    dialect: "messages",
    source: "betaMessages",
    type: "BetaTool",
    at: "tools",
  },
  { dialect: "messages", source: "messages", type: "TextBlockParam", at: "messages.content" },
  { dialect: "messages", source: "messages", type: "TextBlockParam", at: "system" },
  { dialect: "messages", source: "messages", type: "ImageBlockParam", at: "messages.content" },
  { dialect: "messages", source: "messages", type: "DocumentBlockParam", at: "messages.content" },
  { dialect: "messages", source: "messages", type: "ToolUseBlockParam", at: "messages.content" },
  { dialect: "messages", source: "messages", type: "ToolResultBlockParam", at: "messages.content" },
  { dialect: "messages", source: "betaMessages", type: "BetaSystemMessageParam", at: "messages" },
  { dialect: "chat", source: "chat", type: "ChatCompletionCreateParamsBase", at: "" },
  {
    dialect: "chat",
    source: "chat",
    type: "ChatCompletionAssistantMessageParam",
    at: "messages",
  },
  { dialect: "chat", source: "chat", type: "ChatCompletionUserMessageParam", at: "messages" },
  {
    dialect: "chat",
    source: "chat",
    type: "ChatCompletionToolMessageParam",
    at: "messages",
  },
  {
    dialect: "chat",
    source: "chat",
    type: "ChatCompletionContentPartImage",
    at: "messages.content",
  },
  { dialect: "chat", source: "chat", type: "ChatCompletionContentPartText", at: "messages.content" },
  {
    dialect: "chat",
    source: "openaiShared",
    type: "FunctionDefinition",
    at: "tools.function",
  },
  { dialect: "responses", source: "responses", type: "ResponseCreateParamsBase", at: "" },
  { dialect: "responses", source: "betaResponses", type: "ResponseCreateParamsBase", at: "" },
  { dialect: "responses", source: "openaiShared", type: "Reasoning", at: "reasoning" },
  { dialect: "responses", source: "responses", type: "ResponseTextConfig", at: "text" },
  {
    dialect: "responses",
    source: "responses",
    type: "ResponseFormatTextJSONSchemaConfig",
    at: "text.format",
  },
  {
    dialect: "responses",
    source: "responses",
    type: "FunctionTool",
    at: "tools",
  },
  { dialect: "responses", source: "responses", type: "EasyInputMessage", at: "input" },
  { dialect: "responses", source: "responses", type: "ResponseInputText", at: "input.content" },
  {
    dialect: "responses",
    source: "responses",
    type: "ResponseInputImage",
    at: "input.content",
  },
  {
    dialect: "responses",
    source: "responses",
    type: "ResponseInputFile",
    at: "input.content",
  },
  {
    dialect: "responses",
    source: "responses",
    type: "ResponseFunctionToolCall",
    at: "input",
  },
  { dialect: "messages", source: "messages", type: "UserMessageParam", at: "messages" },
  { dialect: "messages", source: "messages", type: "AssistantMessageParam", at: "messages" },
  { dialect: "messages", source: "messages", type: "SystemMessageParam", at: "messages" },
  { dialect: "messages", source: "messages", type: "Base64ImageSource", at: "messages.content.source" },
  { dialect: "messages", source: "messages", type: "URLImageSource", at: "messages.content.source" },
  { dialect: "messages", source: "messages", type: "Base64PDFSource", at: "messages.content.source" },
  { dialect: "messages", source: "messages", type: "URLPDFSource", at: "messages.content.source" },
  { dialect: "messages", source: "messages", type: "PlainTextSource", at: "messages.content.source" },
  { dialect: "messages", source: "messages", type: "ContentBlockSource", at: "messages.content.source" },
  { dialect: "messages", source: "messages", type: "ThinkingBlockParam", at: "messages.content" },
  { dialect: "messages", source: "messages", type: "RedactedThinkingBlockParam", at: "messages.content" },
  { dialect: "messages", source: "messages", type: "SearchResultBlockParam", at: "messages.content.content" },
  {
    dialect: "messages",
    source: "messages",
    type: "ToolReferenceBlockParam",
    at: "messages.content.content",
  },
  { dialect: "messages", source: "messages", type: "TextBlockParam", at: "messages.content.content" },
  { dialect: "messages", source: "messages", type: "ImageBlockParam", at: "messages.content.content" },
  { dialect: "messages", source: "messages", type: "DocumentBlockParam", at: "messages.content.content" },
  { dialect: "messages", source: "messages", type: "ToolChoiceAuto", at: "tool_choice" },
  { dialect: "messages", source: "messages", type: "ToolChoiceAny", at: "tool_choice" },
  { dialect: "messages", source: "messages", type: "ToolChoiceTool", at: "tool_choice" },
  { dialect: "messages", source: "messages", type: "ToolChoiceNone", at: "tool_choice" },
  { dialect: "messages", source: "messages", type: "JSONOutputFormat", at: "output_config.format" },
  { dialect: "chat", source: "chat", type: "ChatCompletionSystemMessageParam", at: "messages" },
  { dialect: "chat", source: "chat", type: "ChatCompletionDeveloperMessageParam", at: "messages" },
  {
    dialect: "chat",
    source: "chat",
    type: "ChatCompletionMessageFunctionToolCall",
    at: "messages.tool_calls",
  },
  { dialect: "chat", source: "chat", type: "ChatCompletionFunctionTool", at: "tools" },
  { dialect: "chat", source: "chat", type: "ChatCompletionNamedToolChoice", at: "tool_choice" },
  { dialect: "chat", source: "chat", type: "ChatCompletionAllowedToolChoice", at: "tool_choice" },
  { dialect: "chat", source: "chat", type: "ChatCompletionFunctionCallOption", at: "function_call" },
  { dialect: "chat", source: "chat", type: "ChatCompletionContentPartRefusal", at: "messages.content" },
  { dialect: "chat", source: "openaiShared", type: "ResponseFormatJSONSchema", at: "response_format" },
  { dialect: "responses", source: "responses", type: "ResponseReasoningItem", at: "input" },
  { dialect: "responses", source: "responses", type: "ResponseOutputMessage", at: "input" },
  { dialect: "responses", source: "responses", type: "ResponseOutputText", at: "input.content" },
  { dialect: "responses", source: "responses", type: "ResponseOutputRefusal", at: "input.content" },
  { dialect: "responses", source: "responses", type: "ResponseInputTextContent", at: "input.output" },
  { dialect: "responses", source: "responses", type: "ResponseInputImageContent", at: "input.output" },
  { dialect: "responses", source: "responses", type: "ResponseInputFileContent", at: "input.output" },
  { dialect: "responses", source: "responses", type: "ToolChoiceFunction", at: "tool_choice" },
  { dialect: "responses", source: "responses", type: "ToolChoiceAllowed", at: "tool_choice" },
  { dialect: "responses", source: "responses", type: "NamespaceTool", at: "tools" },
];

describe("rule 2.2: the table knows every field of the official SDKs' request types", () => {
  test.each(types)("$source $type", ({ dialect, source, type, at }) => {
    const rows = new Map(fields[dialect].map((row) => [row.name, row]));
    const isKnown = (field: string) =>
      at === "" ? rows.has(field) : rows.has(`${at}.${field}`) || rows.get(at)?.holds?.includes(field);
    const declared = fieldsOf(source, type);
    expect(declared.length).toBeGreaterThan(0);
    expect(declared.filter((field) => isKnown(field) !== true)).toEqual([]);
  });

  const requests = types.filter(({ at }) => at === "");
  test.each(requests)(
    "rule 10.1: what each top-level field of $source does to the price is judged",
    (row) => {
      expect(
        fieldsOf(row.source, row.type).filter((field) => priceEffect(row.dialect, field) === null),
      ).toEqual([]);
    },
  );

  test.each(dialects)("rule 10.1: %s: each top-level row is judged once, and nothing else", (dialect) => {
    const rows = fields[dialect].map(({ name }) => name).filter((name) => !name.includes("."));
    expect(Object.values(priceEffects[dialect]).flat().toSorted()).toEqual(rows.toSorted());
  });

  test("rule 10.1: what each beta of the official SDK does to the price is judged", () => {
    const text = readFileSync(join(root, "node_modules/@anthropic-ai/sdk/resources/beta/beta.d.ts"), "utf8");
    const declared = /type AnthropicBeta = ([^;]+);/.exec(text)?.[1]?.matchAll(/'([^']+)'/g) ?? [];
    const families = Array.from(declared, ([, name = ""]) => name.replace(/\d{4}-\d{2}-\d{2}$/, ""));
    const judged = new Set([...pricedBetas.map(([beginning]) => beginning), ...freeBetas]);
    expect(families.length).toBeGreaterThan(20);
    expect(families.filter((name) => !judged.has(name))).toEqual([]);
  });

  test.each(["messages", "chat", "responses"] as const)("no field of %s stands there twice", (dialect) => {
    const names = fields[dialect].map(({ name }) => name);
    expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
  });
});

test("docs/dialects.md is what the table says (npm run generate)", () => {
  expect(readFileSync(join(root, "docs/dialects.md"), "utf8")).toBe(dialectsPage());
});
