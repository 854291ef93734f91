/** Reads a Responses client's tools and its choice among them (dialects.md §B3, §F, §H3). */
import type { Cursor } from "../cursor.ts";
import { serverToolOf } from "../find-server-tool.ts";
import { choiceOfMode, readAllowedTools, ToolList } from "../tool-list.ts";
import type { Aliases } from "../conversation-builder.ts";
import type { MessagesRequest, ToolChoice } from "../messages/types.ts";

export type Namespaces = Map<string, { readonly namespace: string; readonly name: string }>;

/** Whether Gapura runs such tools; parameters are checked where the loop declares them. */
const isServerTool = (type: string): boolean => serverToolOf("responses", type) !== undefined;

/** Returns a namespaced function's flat name in the hub, and remembers it so that answers can restore it. */
export function flatName(namespace: string, name: string, aliases: Aliases, namespaces: Namespaces): string {
  const flat = aliases.name(`${namespace}__${name}`);
  namespaces.set(flat, { namespace, name });
  return flat;
}

interface Reading {
  readonly list: ToolList;
  readonly aliases: Aliases;
  readonly namespaces: Namespaces;
}

/** @throws ApiError `unsupported_tool` for a tool that only a Responses upstream could run. */
export function readResponsesTools(
  root: Cursor,
  aliases: Aliases,
  namespaces: Namespaces,
  places: WeakMap<object, string>,
): Pick<MessagesRequest, "tools" | "tool_choice"> & { readonly serverTools: boolean } {
  const reading: Reading = { list: new ToolList(aliases, places), aliases, namespaces };
  let serverTools = false;
  for (const tool of declaredTools(root)) serverTools = readTool(tool, reading) || serverTools;
  return { ...reading.list.finish(root, readChoice(root, reading), serverTools), serverTools };
}

/** Lists `tools`, and those that Codex adds by `additional_tools` items in the input. */
function declaredTools(root: Cursor): Cursor[] {
  const tools = [root.objects("tools") ?? []];
  const input = root.content("input") ?? [];
  if (typeof input !== "string")
    for (const item of input)
      if (item.get("type") === "additional_tools") tools.push(item.objects("tools") ?? []);
  return tools.flat();
}

/** @returns whether it is a server tool. */
function readTool(tool: Cursor, reading: Reading): boolean {
  const type = tool.requiredText("type");
  if (isServerTool(type)) {
    // It asks for cached results alone, and we have none: counts as not declared (dialects.md §H3). Never searched live
    // against the client's wish.
    return tool.boolean("external_web_access") !== false;
  }
  if (type === "function") {
    reading.list.add(tool.name("name"), readFunction(tool), tool);
    return false;
  }
  if (type === "namespace") {
    readNamespace(tool, reading);
    return false;
  }
  return refuse(tool, type);
}

function refuse(tool: Cursor, type: string): never {
  return tool.fail(
    "type",
    `tools of type ${type.slice(0, 40)} are not supported for this model`,
    "unsupported_tool",
  );
}

function readNamespace(tool: Cursor, { list, aliases, namespaces }: Reading): void {
  const namespace = tool.name("name");
  for (const inner of tool.objects("tools") ?? tool.missing("tools")) {
    const type = inner.text("type") ?? "function";
    if (type !== "function") refuse(inner, type);
    const name = inner.name("name");
    flatName(namespace, name, aliases, namespaces);
    list.add(`${namespace}__${name}`, readFunction(inner), inner);
  }
}

const readFunction = (tool: Cursor) => ({
  description: tool.text("description"),
  parameters: tool.object("parameters")?.value,
  strict: tool.boolean("strict"),
});

function readChoice(root: Cursor, { list }: Reading): ToolChoice | undefined {
  if (!root.has("tool_choice")) return undefined;
  if (typeof root.get("tool_choice") === "string")
    return choiceOfMode(root.oneOf("tool_choice", ["none", "auto", "required"]) ?? "auto");
  const choice = root.requiredObject("tool_choice");
  const type = choice.requiredText("type");
  if (type === "function") return list.one(nameOf(choice), choice, "name");
  if (type === "allowed_tools")
    return readAllowedTools(choice, list, (at) => ({ name: nameOf(at), at }), isFunctionReference);
  // It forces the tool on the first iteration: the loop reads that from the client's body.
  if (isServerTool(type)) return undefined;
  return choice.fail(
    "type",
    `the tool choice type ${type.slice(0, 40)} is not supported`,
    "unsupported_tool",
  );
}

const isFunctionReference = (tool: Cursor): boolean => !isServerTool(tool.requiredText("type"));

function nameOf(tool: Cursor): string {
  const type = tool.text("type") ?? "function";
  if (type !== "function") refuse(tool, type);
  const namespace = tool.text("namespace");
  const name = tool.name("name");
  return namespace === undefined ? name : `${namespace}__${name}`;
}
