/** Reads a Chat Completions client's request into the hub (dialects.md §B2, §D1). */
import { readArguments } from "../arguments.ts";
import { withBreakpoint } from "../cache-breakpoints.ts";
import type { Carry, CodecContext } from "../codecs.ts";
import { Cursor, fieldError } from "../cursor.ts";
import { effortToHub, openaiEfforts } from "../effort.ts";
import { readSchemaFormat } from "../formats.ts";
import { readFileData, readImageUrl, withDetail } from "../media.ts";
import { failPart, readParts, readTexts } from "../read-parts.ts";
import { readStops } from "../stop-sequences.ts";
import { choiceOfMode, readAllowedTools, ToolList } from "../tool-list.ts";
import { readUser } from "../user-id.ts";
import { Aliases, ConversationBuilder } from "../conversation-builder.ts";
import type {
  ContentBlockParam,
  DocumentBlock,
  JsonObject,
  MessagesRequest,
  ToolChoice,
} from "../messages/types.ts";

interface Reading {
  readonly conversation: ConversationBuilder;
  readonly aliases: Aliases;
  readonly places: WeakMap<object, string>;
  /** Number of `function_call`s so far. The legacy form has no ids: a `function` message answers the last one. */
  legacyCalls: number;
}

/** @throws ApiError naming the field's path, as `messages[3].content[1].image_url.url`. */
export function readChatRequest(
  body: JsonObject,
  _context: CodecContext,
): { readonly request: MessagesRequest; readonly carry: Carry } {
  const root = new Cursor(body, "", "openai");
  const aliases = new Aliases();
  const reading: Reading = {
    conversation: new ConversationBuilder("openai", aliases),
    aliases,
    places: new WeakMap(),
    legacyCalls: 0,
  };
  const model = root.name("model");
  const messages = root.objects("messages") ?? root.missing("messages");
  if (messages.length === 0) root.fail("messages", "at least one message is required");
  for (const message of messages) readMessage(message, reading);
  const { system, messages: turns } = reading.conversation.finish();
  const serverTools = root.has("web_search_options");
  const stops = readStops(root, "stop");
  const request: MessagesRequest = {
    model,
    messages: turns,
    ...(system !== undefined && { system }),
    ...readTools(root, reading, serverTools),
    ...readLimits(root),
    ...(stops.length > 0 && { stop_sequences: [...stops] }),
    ...readThinking(root),
    ...readUser(root),
  };
  const carry: Carry = {
    dialect: "chat",
    request: body,
    serverTools,
    aliases: aliases.originals,
    namespaces: new Map(),
    stops,
    compacts: false,
    places: reading.places,
  };
  return { request, carry };
}

function readLimits(root: Cursor): Partial<MessagesRequest> {
  root.integer("n", 1);
  root.number("frequency_penalty", -2, 2);
  root.number("presence_penalty", -2, 2);
  root.integer("seed", Number.MIN_SAFE_INTEGER);
  const older = root.integer("max_tokens", 1);
  const max_tokens = root.integer("max_completion_tokens", 1) ?? older;
  const temperature = root.number("temperature", 0, 2);
  const top_p = root.number("top_p", 0, 1);
  const stream = root.boolean("stream");
  root.object("stream_options")?.boolean("include_usage");
  return {
    ...(max_tokens !== undefined && { max_tokens }),
    ...(temperature !== undefined && { temperature }),
    ...(top_p !== undefined && { top_p }),
    ...(stream !== undefined && { stream }),
  };
}

function readThinking(root: Cursor): Pick<MessagesRequest, "thinking" | "output_config"> {
  const effort = root.oneOf("reasoning_effort", openaiEfforts);
  const { thinking, output_config } = effort === undefined ? {} : effortToHub(effort);
  const format = readFormat(root);
  const config = { ...output_config, ...format };
  return { ...(thinking && { thinking }), ...(Object.keys(config).length > 0 && { output_config: config }) };
}

function readFormat(root: Cursor): MessagesRequest["output_config"] {
  const format = root.object("response_format");
  if (format === undefined) return undefined;
  if (!format.has("type")) format.missing("type");
  const type = format.oneOf("type", ["text", "json_object", "json_schema"]);
  return type === "json_schema" ? readSchemaFormat(format.requiredObject("json_schema")) : undefined;
}

function readTools(
  root: Cursor,
  { aliases, places }: Reading,
  serverTools: boolean,
): Pick<MessagesRequest, "tools" | "tool_choice"> {
  const list = new ToolList(aliases, places);
  for (const tool of root.objects("tools") ?? []) {
    if (tool.requiredText("type") !== "function")
      tool.fail("type", "only function tools are supported for this model", "unsupported_tool");
    const definition = tool.requiredObject("function");
    const { name, ...rest } = readFunction(definition);
    list.add(name, rest, definition);
  }
  for (const definition of root.objects("functions") ?? []) {
    const { name, ...rest } = readFunction(definition);
    list.add(name, rest, definition);
  }
  const choice = root.has("tool_choice") ? readChoice(root, list) : readLegacyChoice(root, list);
  return list.finish(root, choice, serverTools);
}

function readFunction(definition: Cursor) {
  return {
    name: definition.name("name"),
    description: definition.text("description"),
    parameters: definition.object("parameters")?.value,
    strict: definition.boolean("strict"),
  };
}

function readChoice(root: Cursor, list: ToolList): ToolChoice | undefined {
  if (typeof root.get("tool_choice") === "string")
    return choiceOfMode(root.oneOf("tool_choice", ["none", "auto", "required"]) ?? "auto");
  const choice = root.requiredObject("tool_choice");
  const type = choice.requiredText("type");
  if (type === "function") {
    const chosen = choice.requiredObject("function");
    return list.one(chosen.name("name"), chosen, "name");
  }
  if (type === "allowed_tools") {
    const allowed = choice.requiredObject("allowed_tools");
    return readAllowedTools(allowed, list, (tool) => {
      const at = tool.requiredObject("function");
      return { name: at.name("name"), at };
    });
  }
  return choice.fail(
    "type",
    `the tool choice type ${type.slice(0, 40)} is not supported`,
    "unsupported_tool",
  );
}

/** The form before `tools`: `"none"`, `"auto"` or `{name}`. */
function readLegacyChoice(root: Cursor, list: ToolList): ToolChoice | undefined {
  if (!root.has("function_call")) return undefined;
  if (typeof root.get("function_call") === "string")
    return choiceOfMode(root.oneOf("function_call", ["none", "auto"]) ?? "auto");
  const chosen = root.requiredObject("function_call");
  return list.one(chosen.name("name"), chosen, "name");
}

function readMessage(message: Cursor, reading: Reading): void {
  const role = message.requiredText("role");
  switch (role) {
    case "system":
    case "developer":
      reading.conversation.instructions(readTexts(message, isText).join("\n"));
      return;
    case "user":
      reading.conversation.user(
        readParts(message, "content", (part) => withBreakpoint(readPart(part, reading), part)),
      );
      return;
    case "assistant":
      readAssistant(message, reading);
      return;
    case "tool":
      reading.conversation.result(
        message.name("tool_call_id"),
        readResult(message, reading),
        message.at("tool_call_id"),
      );
      return;
    case "function":
      message.name("name");
      reading.conversation.result(
        legacyId(reading.legacyCalls),
        readResult(message, reading),
        message.at("name"),
      );
      return;
    default:
      message.fail("role", `unknown role ${role.slice(0, 40)}`);
  }
}

const legacyId = (index: number): string => `call_function_${index}`;

const isText = (type: string): boolean => type === "text";

function readPart(part: Cursor, reading: Reading): ContentBlockParam {
  const type = part.requiredText("type");
  switch (type) {
    case "text":
      return { type, text: part.requiredText("text") };
    case "image_url": {
      const url = part.requiredObject("image_url");
      const image = withDetail({ type: "image", source: readImageUrl(url, "url") }, url.text("detail"));
      reading.places.set(image, part.at("image_url"));
      return image;
    }
    case "file": {
      const document = readFile(part.requiredObject("file"));
      reading.places.set(document, part.at("file"));
      return document;
    }
    default:
      return failPart(part, type, "supported");
  }
}

function readFile(file: Cursor): DocumentBlock {
  const title = file.text("filename");
  const id = file.text("file_id");
  const source = id === undefined ? readFileData(file, title) : { type: "file" as const, file_id: id };
  return { type: "document", source, ...(title !== undefined && { title }) };
}

function readResult(message: Cursor, reading: Reading): string | ContentBlockParam[] {
  // Legacy function messages may have null content.
  if (!message.has("content") && message.get("role") === "function") return "";
  return readParts(message, "content", (part) => readPart(part, reading));
}

function readAssistant(message: Cursor, reading: Reading): void {
  const { conversation } = reading;
  const reasoning = message.text("reasoning_content");
  const texts = [
    ...(message.has("content") ? readTexts(message, isText) : []),
    ...(message.text("refusal") === undefined ? [] : [message.requiredText("refusal")]),
  ].filter((text) => text !== "");
  conversation.assistant([
    ...(reasoning === undefined || reasoning === ""
      ? []
      : [{ type: "thinking" as const, thinking: reasoning, signature: "" }]),
    ...texts.map((text) => ({ type: "text" as const, text })),
  ]);
  for (const [index, call] of (message.objects("tool_calls") ?? []).entries()) {
    const path = message.at("tool_calls", index);
    if ((call.text("type") ?? "function") !== "function")
      throw fieldError(
        "openai",
        `${path}.type`,
        "only calls of functions are supported",
        "unsupported_content",
      );
    readCall(call.name("id"), call.requiredObject("function"), path, reading);
  }
  const legacy = message.object("function_call");
  if (legacy === undefined) return;
  reading.legacyCalls += 1;
  readCall(legacyId(reading.legacyCalls), legacy, message.at("function_call"), reading);
}

function readCall(id: string, called: Cursor, path: string, { conversation, aliases }: Reading): void {
  conversation.call(id, aliases.name(called.name("name")), readArguments(called), path);
}
