/** Reads a Responses client's request into the hub (dialects.md §B3, §D1, §F). */
import { readArguments } from "../arguments.ts";
import { withBreakpoint } from "../cache-breakpoints.ts";
import type { Carry, CodecContext, Sealer } from "../codecs.ts";
import { Cursor } from "../cursor.ts";
import { effortToHub, openaiEfforts } from "../effort.ts";
import { serverToolItems } from "../find-server-tool.ts";
import { readSchemaFormat } from "../formats.ts";
import { readFileData, readFileUrl, readImageUrl, withDetail } from "../media.ts";
import { failPart, readParts, readTexts } from "../read-parts.ts";
import { openReasoningItem } from "../reasoning.ts";
import { readUser } from "../user-id.ts";
import { Aliases, ConversationBuilder } from "../conversation-builder.ts";
import type { ContentBlockParam, DocumentBlock, JsonObject, MessagesRequest } from "../messages/types.ts";
import { asCompaction, INSTRUCTION, readCompaction } from "./compaction.ts";
import { flatName, readResponsesTools, type Namespaces } from "./read-tools.ts";
import { isObject } from "../../lib/json-object.ts";

interface Reading {
  readonly conversation: ConversationBuilder;
  readonly aliases: Aliases;
  readonly namespaces: Namespaces;
  readonly places: WeakMap<object, string>;
  readonly sealer: Sealer;
}

/** @throws ApiError naming the field's path, as `input[3].content[1].image_url`. */
export function readResponsesRequest(
  body: JsonObject,
  context: CodecContext,
): { readonly request: MessagesRequest; readonly carry: Carry } {
  const root = new Cursor(body, "", "openai");
  const aliases = new Aliases();
  const reading: Reading = {
    conversation: new ConversationBuilder("openai", aliases),
    aliases,
    namespaces: new Map(),
    places: new WeakMap(),
    sealer: context.sealer,
  };
  const model = root.name("model");
  const instructions = root.text("instructions");
  if (instructions !== undefined && instructions !== "") reading.conversation.instructions(instructions);
  const { serverTools, ...tools } = readResponsesTools(root, aliases, reading.namespaces, reading.places);
  const compacts = readInput(root, reading);
  const { system, messages } = reading.conversation.finish();
  const asked: MessagesRequest = {
    model,
    messages,
    ...(system !== undefined && { system }),
    ...tools,
    ...readLimits(root),
    ...readThinking(root),
    ...readUser(root),
  };
  const request = compacts ? asCompaction(asked, serverTools || (tools.tools ?? []).length > 0) : asked;
  const carry: Carry = {
    dialect: "responses",
    request: body,
    serverTools,
    aliases: aliases.originals,
    namespaces: reading.namespaces,
    stops: [],
    compacts,
    places: reading.places,
  };
  return { request, carry };
}

function readLimits(root: Cursor): Partial<MessagesRequest> {
  const max_tokens = root.integer("max_output_tokens", 1);
  const temperature = root.number("temperature", 0, 2);
  const top_p = root.number("top_p", 0, 1);
  const stream = root.boolean("stream");
  root.texts("include");
  return {
    ...(max_tokens !== undefined && { max_tokens }),
    ...(temperature !== undefined && { temperature }),
    ...(top_p !== undefined && { top_p }),
    ...(stream !== undefined && { stream }),
  };
}

function readThinking(root: Cursor): Pick<MessagesRequest, "thinking" | "output_config"> {
  const reasoning = root.object("reasoning");
  const effort = reasoning?.oneOf("effort", openaiEfforts);
  const wantsSummary = (reasoning?.text("summary") ?? reasoning?.text("generate_summary")) !== undefined;
  const { thinking, output_config } = effort === undefined ? {} : effortToHub(effort);
  const shown = thinking?.type === "adaptive" && wantsSummary ? { display: "summarized" } : {};
  const config = { ...output_config, ...readFormat(root) };
  return {
    ...(thinking && { thinking: { ...thinking, ...shown } }),
    ...(Object.keys(config).length > 0 && { output_config: config }),
  };
}

function readFormat(root: Cursor): MessagesRequest["output_config"] {
  const format = root.object("text")?.object("format");
  if (format === undefined) return undefined;
  if (!format.has("type")) format.missing("type");
  const type = format.oneOf("type", ["text", "json_object", "json_schema"]);
  return type === "json_schema" ? readSchemaFormat(format) : undefined;
}

/** Reads the input. @returns whether it ends with a `compaction_trigger`. */
function readInput(root: Cursor, reading: Reading): boolean {
  const input = root.content("input") ?? root.missing("input");
  if (input.length === 0 && typeof input !== "string") root.fail("input", "at least one item is required");
  if (typeof input === "string") {
    reading.conversation.user(input);
    return false;
  }
  const last = input.at(-1);
  const compacts = last?.get("type") === "compaction_trigger";
  for (const item of compacts ? input.slice(0, -1) : input) readItem(item, reading);
  if (compacts) reading.conversation.user(INSTRUCTION);
  return compacts;
}

function readItem(item: Cursor, reading: Reading): void {
  const type = item.text("type") ?? (item.has("role") ? "message" : item.requiredText("type"));
  switch (type) {
    case "message":
      readMessage(item, reading);
      return;
    case "function_call":
      readCall(item, reading);
      return;
    case "function_call_output":
      reading.conversation.result(
        item.name("call_id"),
        readParts(item, "output", (part) => readPart(part, reading)),
        item.at("call_id"),
      );
      return;
    case "reasoning":
      readReasoning(item, reading);
      return;
    case "compaction":
      reading.conversation.user(readCompaction(item, reading.sealer));
      return;
    case "compaction_trigger":
      item.fail("type", "a compaction_trigger must be the last item of the input");
      return;
    // Read with the tools.
    case "additional_tools":
      return;
    case "item_reference":
      item.fail(
        "type",
        "this item_reference is not known here (any more); send whole items, as with store:false",
      );
      return;
    default:
      // A server tool's item of an earlier turn: the model gets the text that followed it (service.md "Conversations").
      if (serverToolItems.has(type)) return reading.conversation.leaveOut();
      item.fail("type", `input items of type ${type.slice(0, 40)} are not supported`, "unsupported_content");
  }
}

function readMessage(item: Cursor, reading: Reading): void {
  const role = item.requiredText("role");
  switch (role) {
    case "system":
    case "developer":
      reading.conversation.instructions(readTexts(item, isText).join("\n"));
      return;
    case "assistant": {
      for (const text of readTexts(item, isText))
        if (text !== "") reading.conversation.continueAssistant({ type: "text", text });
      return;
    }
    case "user":
      reading.conversation.user(
        readParts(item, "content", (part) => withBreakpoint(readPart(part, reading), part)),
      );
      return;
    default:
      item.fail("role", `unknown role ${role.slice(0, 40)}`);
  }
}

const isText = (type: string): boolean => type === "input_text" || type === "output_text" || type === "text";

function readPart(part: Cursor, reading: Reading): ContentBlockParam {
  const type = part.requiredText("type");
  if (isText(type)) return { type: "text", text: part.requiredText("text") };
  if (type === "input_image") {
    const id = part.text("file_id");
    const source =
      id === undefined ? readImageUrl(part, "image_url") : { type: "file" as const, file_id: id };
    const image = withDetail({ type: "image", source }, part.text("detail"));
    reading.places.set(image, part.path);
    return image;
  }
  if (type === "input_file") {
    const document = readFile(part);
    reading.places.set(document, part.path);
    return document;
  }
  return failPart(part, type, "supported");
}

function readFile(part: Cursor): DocumentBlock {
  const title = part.text("filename");
  const id = part.text("file_id");
  const source =
    id !== undefined
      ? { type: "file" as const, file_id: id }
      : part.has("file_url")
        ? readFileUrl(part)
        : readFileData(part, title);
  return { type: "document", source, ...(title !== undefined && { title }) };
}

function readCall(item: Cursor, { conversation, aliases, namespaces }: Reading): void {
  const namespace = item.text("namespace");
  const name = item.name("name");
  const hubName =
    namespace === undefined ? aliases.name(name) : flatName(namespace, name, aliases, namespaces);
  conversation.call(item.name("call_id"), hubName, readArguments(item), item.path);
}

/**
 * Restores reasoning that we sealed, or drops it when it does not open. A blob that never was sealed is marked as such;
 * a summary without any is kept as unsigned text (dialects.md §D2).
 */
function readReasoning(item: Cursor, { conversation, sealer }: Reading): void {
  const summary = joined(item, "summary") || joined(item, "content");
  const encrypted = item.text("encrypted_content");
  if (encrypted !== undefined) {
    const block = openReasoningItem({ id: item.text("id") ?? "", encrypted, summary }, sealer);
    if (block !== null) conversation.continueAssistant(block);
  } else if (summary !== "")
    conversation.continueAssistant({ type: "thinking", thinking: summary, signature: "" });
}

const joined = (item: Cursor, key: string): string =>
  (item.list(key) ?? [])
    .flatMap((part) => (isObject(part) && typeof part["text"] === "string" ? [part["text"]] : []))
    .join("\n\n");
