/**
 * Reads a Messages client's request into the hub. The hub is this dialect, so that every field that is not named here
 * stays as it is: the checks are those that conversions rely on, and the changes are tool names and ids that other
 * dialects refuse, and the signatures of reasoning that we sealed (reasoning.ts).
 */
import { withoutCitedFiles } from "../cited-files.ts";
import type { Carry, CodecContext, Sealer } from "../codecs.ts";
import { Cursor } from "../cursor.ts";
import { messagesEfforts } from "../effort.ts";
import { serverToolOf } from "../find-server-tool.ts";
import { allTools, demandsCall } from "../instructions.ts";
import { checkImageType } from "../media.ts";
import { compactionFields, openBlob, openSignature, unreadCompaction } from "../reasoning.ts";
import { emptySchema } from "../schemas.ts";
import { readStops } from "../stop-sequences.ts";
import { failWithoutTools } from "../tool-list.ts";
import { Aliases, checkToolResults } from "../conversation-builder.ts";
import type {
  ContentBlockParam,
  FunctionTool,
  JsonObject,
  JsonValue,
  MessageParam,
  MessagesRequest,
  ToolChoice,
} from "./types.ts";

/** Official limit of messages (dialects.md §B1). */
const MESSAGES_MAX = 100_000;

interface Reading {
  readonly aliases: Aliases;
  readonly places: WeakMap<object, string>;
  readonly sealer: Sealer;
}

/** @throws ApiError naming the field's path, as `messages.3.content.1.source.media_type`. */
export function readMessagesRequest(
  body: JsonObject,
  context: CodecContext,
): { readonly request: MessagesRequest; readonly carry: Carry } {
  const root = new Cursor(body, "", "messages");
  const reading: Reading = { aliases: new Aliases(), places: new WeakMap(), sealer: context.sealer };
  const model = root.name("model");
  checkLimits(root);
  const messages = readMessages(root, reading);
  const tools = readTools(root, reading);
  const choice = readToolChoice(root, reading);
  // The beta field `output_format` is read into `output_config`.
  const { output_format: _beta, ...rest } = withoutNulls(body);
  const request: MessagesRequest = {
    ...rest,
    model,
    messages,
    ...readOutputConfig(root),
    ...(tools !== undefined && { tools }),
    ...(choice !== undefined && { tool_choice: choice }),
  };
  if ((tools ?? []).length === 0 && demandsCall(request) && allTools(request).length === 0)
    failWithoutTools(root);
  checkSystem(root);
  checkToolResults(
    messages,
    context.owed?.map((id) => reading.aliases.id(id)),
  );
  const carry: Carry = {
    dialect: "messages",
    request: body,
    serverTools: (tools ?? []).some(isServerTool),
    aliases: reading.aliases.originals,
    namespaces: new Map(),
    stops: readStops(root, "stop_sequences"),
    compacts: false,
    places: reading.places,
  };
  return { request, carry };
}

/** Optional fields that are null count as absent (rule 1.17). */
function withoutNulls(object: JsonObject): JsonObject {
  const kept: JsonObject = { ...object };
  for (const key of Object.keys(kept)) if (kept[key] === null) delete kept[key];
  return kept;
}

function checkLimits(root: Cursor): void {
  root.integer("max_tokens", 1);
  root.boolean("stream");
  root.number("temperature", 0, 1);
  root.number("top_p", 0, 1);
  root.integer("top_k", 0);
  root.object("metadata")?.text("user_id");
  root.text("service_tier");
  const thinking = root.object("thinking");
  if (thinking === undefined) return;
  if (!thinking.has("type")) thinking.missing("type");
  thinking.oneOf("type", ["adaptive", "disabled", "enabled", "between_tools"]);
  thinking.text("display");
}

function readOutputConfig(root: Cursor): Pick<MessagesRequest, "output_config"> {
  const config = root.object("output_config");
  const effort = config?.oneOf("effort", messagesEfforts);
  const format = config?.object("format") ?? root.object("output_format");
  format?.oneOf("type", ["json_schema"]);
  const schema = format?.requiredObject("schema").value;
  const { format: _format, effort: _effort, ...rest } = config?.value ?? {};
  const merged = {
    ...rest,
    ...(effort !== undefined && { effort }),
    ...(schema !== undefined && { format: { ...format?.value, type: "json_schema" as const, schema } }),
  };
  return Object.keys(merged).length === 0 ? {} : { output_config: merged };
}

function checkSystem(root: Cursor): void {
  if (typeof root.get("system") === "string") return;
  for (const block of root.objects("system") ?? []) block.requiredText("text");
}

function readMessages(root: Cursor, reading: Reading): MessageParam[] {
  const messages = root.objects("messages") ?? root.missing("messages");
  if (messages.length === 0) root.fail("messages", "at least one message is required");
  if (messages.length > MESSAGES_MAX) root.fail("messages", `at most ${MESSAGES_MAX} messages are allowed`);
  return messages.map((message) => {
    if (!message.has("role")) message.missing("role");
    const role = message.oneOf("role", ["user", "assistant", "system"]) ?? message.missing("role");
    // A system turn may consist of its `output_config` alone (dialects.md §B1).
    const content = message.content("content") ?? (role === "system" ? "" : message.missing("content"));
    const read = typeof content === "string" ? content : readBlocks(content, reading);
    const turn = { ...message.value, role, content: read };
    reading.places.set(turn, message.path);
    return turn;
  });
}

const readBlocks = (blocks: readonly Cursor[], reading: Reading): ContentBlockParam[] =>
  blocks.flatMap((block) => readBlock(block, reading) ?? []);

/** Reasoning has no place inside of other blocks. */
const readNested = (blocks: readonly Cursor[], reading: Reading): ContentBlockParam[] =>
  readBlocks(blocks, reading).filter(({ type }) => type !== "thinking" && type !== "redacted_thinking");

/**
 * Opens a `compaction` block, an upstream's summary of a long conversation.
 * @throws ApiError 400 when it was not made for this organization.
 */
function readCompaction(block: Cursor, sealer: Sealer): JsonObject {
  const opened = { ...block.value };
  for (const [key, field] of compactionFields) {
    const sealed = block.text(key);
    if (sealed === undefined || sealed === "") continue;
    const { raw, blob } = openBlob({ dialect: "messages", field, id: "" }, sealed, sealer);
    if (raw || blob === null) throw unreadCompaction(block.style, block.at(key));
    opened[key] = blob;
  }
  return opened;
}

/** Reads a block into the hub; null when it is dropped (reasoning that is not ours, rule 2.17). */
function readBlock(block: Cursor, reading: Reading): ContentBlockParam | null {
  const type = block.requiredText("type");
  switch (type) {
    case "text":
      block.requiredText("text");
      return withoutCitedFiles(block.value) as unknown as ContentBlockParam;
    case "search_result":
      block.requiredText("source");
      block.requiredText("title");
      for (const part of block.objects("content") ?? block.missing("content")) part.requiredText("text");
      return block.value as unknown as ContentBlockParam;
    case "image":
    case "document":
      block.text("title");
      block.text("context");
      checkSource(block, type);
      return placed(block, reading, nestedContent(block.value, "source", block, reading));
    case "thinking": {
      const signature = openSignature(block.text("signature") ?? "", reading.sealer);
      if (signature === null) return null;
      return placed(block, reading, { type, thinking: block.requiredText("thinking"), signature });
    }
    case "redacted_thinking": {
      const data = openSignature(block.requiredText("data"), reading.sealer, "data");
      return data === null ? null : placed(block, reading, { type, data });
    }
    case "tool_use": {
      const id = reading.aliases.id(block.name("id"));
      const name = reading.aliases.name(block.name("name"));
      return placed(block, reading, { ...block.value, id, name, input: block.requiredObject("input").value });
    }
    case "tool_result": {
      const id = reading.aliases.id(block.name("tool_use_id"));
      block.boolean("is_error");
      const content = block.content("content");
      if (content === undefined || typeof content === "string")
        return placed(block, reading, { ...withoutNulls(block.value), tool_use_id: id });
      const nested = readNested(content, reading) as unknown as JsonValue;
      return placed(block, reading, { ...block.value, tool_use_id: id, content: nested });
    }
    case "tool_addition":
    case "tool_removal":
      return placed(block, reading, readToolChange(block, reading));
    case "tool_reference":
      return placed(block, reading, withAlias(block, "tool_name", reading));
    case "compaction":
      return placed(block, reading, readCompaction(block, reading.sealer));
    default:
      return placed(block, reading, block.value);
  }
}

/** Reads a block that changes the tools: it defines a tool as `tools` does, or names one. */
function readToolChange(block: Cursor, reading: Reading): JsonObject {
  const tool = block.object("tool");
  if (tool === undefined) return block.value;
  const definition = tool.object("definition");
  const change =
    definition === undefined
      ? withAlias(tool, "name", reading)
      : { ...tool.value, definition: readTool(definition, reading) as JsonObject };
  return { ...block.value, tool: change };
}

/** Replaces a tool's name by its alias in an object that only names the tool. */
function withAlias(named: Cursor, key: string, { aliases }: Reading): JsonObject {
  const name = named.text(key);
  return name === undefined ? named.value : { ...named.value, [key]: aliases.name(name) };
}

/** Reads the content blocks of a document; nothing else nests. */
function nestedContent(value: JsonObject, key: string, block: Cursor, reading: Reading): JsonObject {
  const source = block.requiredObject(key);
  if (source.value["type"] !== "content") return value;
  const content = source.content("content") ?? source.missing("content");
  if (typeof content === "string") return value;
  const blocks = readNested(content, reading) as unknown as JsonValue;
  return { ...value, [key]: { ...source.value, content: blocks } };
}

function placed(block: Cursor, reading: Reading, value: JsonObject): ContentBlockParam {
  reading.places.set(value, block.path);
  return value as unknown as ContentBlockParam;
}

function checkSource(block: Cursor, type: "image" | "document"): void {
  const source = block.requiredObject("source");
  const kind = source.requiredText("type");
  if (kind === "base64") {
    source.requiredText("data");
    const mediaType = source.requiredText("media_type");
    if (type === "image") checkImageType(source, "media_type", mediaType);
  } else if (kind === "url") source.name("url");
  else if (kind === "file") source.name("file_id");
  else if (type === "document" && kind === "text") source.requiredText("data");
  else if (type === "image" || kind !== "content")
    source.fail("type", `Input tag '${kind.slice(0, 40)}' is not one of the expected tags`);
}

const isFunctionTool = (tool: Cursor): boolean => (tool.text("type") ?? "custom") === "custom";

/** @throws ApiError when two functions have one name. */
function readTools(root: Cursor, reading: Reading): (FunctionTool | JsonObject)[] | undefined {
  const names = new Set<string>();
  return root.objects("tools")?.map((tool) => {
    const read = readTool(tool, reading);
    if (!isFunctionTool(tool)) return read;
    const name = tool.name("name");
    if (names.has(name)) tool.fail("name", `there are two tools named ${name.slice(0, 100)}`);
    names.add(name);
    return read;
  });
}

function readTool(tool: Cursor, reading: Reading): FunctionTool | JsonObject {
  if (!isFunctionTool(tool)) {
    reading.places.set(tool.value, tool.path);
    return tool.value;
  }
  const name = reading.aliases.name(tool.name("name"));
  tool.text("description");
  tool.boolean("strict");
  const input_schema = tool.object("input_schema")?.value ?? emptySchema();
  return { ...withoutNulls(tool.value), name, input_schema };
}

/** Whether Gapura runs the tool; parameters are checked where the loop declares it. */
const isServerTool = (tool: FunctionTool | JsonObject): boolean =>
  serverToolOf("messages", tool.type) !== undefined;

function readToolChoice(root: Cursor, reading: Reading): ToolChoice | undefined {
  const choice = root.object("tool_choice");
  if (choice === undefined) return undefined;
  const type = choice.oneOf("type", ["auto", "any", "tool", "none"]) ?? choice.missing("type");
  if (type === "none") return { type };
  const disabled = choice.boolean("disable_parallel_tool_use");
  const parallel = disabled === undefined ? {} : { disable_parallel_tool_use: disabled };
  return type === "tool"
    ? { type, name: reading.aliases.name(choice.name("name")), ...parallel }
    : { type, ...parallel };
}
