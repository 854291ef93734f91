/** Inspects `tools` and `tool_choice`. */
import { bodyLimits, limitExceeded } from "../../lib/body-limits.ts";
import type { PathStep } from "../../lib/field-path.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";
import type { ContentFacts, ToolEntry } from "./content.ts";
import { bodyFieldError, refuseNoList, walkMember } from "./walk.ts";
import { dialectErrorFamily } from "../../dialects/errors.ts";

/** A request's `tool_choice`. */
export interface InspectedChoice {
  /** The word, or the object's `type`. */
  readonly type: string;
  readonly isWord: boolean;
  readonly name: string | null;
  /** Types of the tools that an `allowed_tools` choice lists. */
  readonly allowed: readonly string[];
}

/**
 * Reads a `tools` array into entries.
 * @throws ApiError 400 for what is no list of objects, and for more tools than there may be.
 */
export function inspectTools(
  reader: JsonReader,
  facts: ContentFacts,
  path: readonly PathStep[],
  tools: ToolEntry[],
): void {
  const listKind = reader.kind();
  if (listKind === "null") return;
  if (listKind !== "array") refuseNoList(facts, path);
  const siblings: Span[] = [];
  reader.array((index) => {
    const start = reader.position;
    const { entry, nested } = readTool(reader, facts, [...path, index]);
    const span: Span = { start, end: reader.position };
    siblings.push(span);
    tools.push({ ...entry, ...span, path: [...path, index], inTurn: false, siblings, index }, ...nested);
  });
}

/** Types in the place of a tool, in a block that changes the tools: the name of one, or the holder of a definition. */
const changes = /^(?:\w+_reference|tool_definition)$/;

/**
 * Reads the tool that a turn of a Messages conversation adds or removes: named, defined, or written as in `tools`.
 * @throws ApiError 400 for a definition that is no object, and for more tools than there may be.
 */
export function inspectToolChange(reader: JsonReader, facts: ContentFacts, path: readonly PathStep[]): void {
  inspectTool(reader, facts, path, (key) => {
    if (key !== "definition" || reader.kind() === "null") return false;
    inspectTool(reader, facts, [...path, key], () => false);
    return true;
  });
}

/** @param read takes the members that only a change has; true: it took one. */
function inspectTool(
  reader: JsonReader,
  facts: ContentFacts,
  path: readonly PathStep[],
  read: (key: string) => boolean,
): void {
  const start = reader.position;
  const { entry, nested } = readTool(reader, facts, path, read);
  const whole = { ...entry, start, end: reader.position, path, siblings: [], index: 0 };
  const tools = entry.type !== null && changes.test(entry.type) ? nested : [whole, ...nested];
  for (const tool of tools) facts.additionalTools.push({ ...tool, inTurn: true });
}

/** Reads the tool ahead, and those in it. */
function readTool(
  reader: JsonReader,
  facts: ContentFacts,
  here: readonly PathStep[],
  read: (key: string) => boolean = () => false,
) {
  const { dialect } = facts;
  facts.tools += 1;
  if (facts.tools > bodyLimits.tools)
    throw limitExceeded("tools", dialectErrorFamily[dialect], here.slice(0, -1));
  if (reader.kind() !== "object") throw bodyFieldError("invalid_type", dialect, here, "must be an object");
  const entry = {
    type: null as string | null,
    name: null as string | null,
    offline: false,
    container: false,
    clientRun: false,
  };
  const nested: ToolEntry[] = [];
  reader.object((key) => {
    if (key === "type") {
      const kind = reader.kind();
      if (kind !== "string" && kind !== "null")
        throw bodyFieldError("invalid_type", dialect, [...here, key], "must be a string");
      entry.type = reader.string() ?? null;
    } else if (key === "name") entry.name = reader.string() ?? null;
    else if (key === "external_web_access") entry.offline = reader.boolean() === false;
    else if (key === "execution") entry.clientRun = reader.string() === "client";
    else if (key === "tools") inspectTools(reader, facts, [...here, key], nested);
    else if (key === "environment" || key === "container") entry.container = isContainer(reader);
    else if (!read(key)) walkMember(reader, facts, key, here);
  });
  return { entry, nested };
}

/** Whether a shell's `environment` is a container rather than the client's own machine. */
function isContainer(reader: JsonReader): boolean {
  if (reader.kind() === "null") return false;
  if (reader.kind() !== "object") return true;
  let type: string | undefined;
  reader.object((key) => {
    if (key === "type") type = reader.string();
  });
  return type !== "local";
}

/** @throws ApiError 400 for a list, and for `tools` in it that are no list or too many. */
export function readToolChoice(reader: JsonReader, { dialect }: ContentFacts): InspectedChoice | null {
  const readAllowed = (path: readonly PathStep[]) => {
    const kind = reader.kind();
    if (kind === "array" || kind === "null") {
      const types = readTypes(reader);
      if (types.length > bodyLimits.tools) throw limitExceeded("tools", dialectErrorFamily[dialect], path);
      return types;
    }
    throw bodyFieldError("invalid_type", dialect, path, "must be an array");
  };
  if (reader.kind() === "array")
    throw bodyFieldError("invalid_type", dialect, ["tool_choice"], "must be a string or an object");
  if (reader.kind() === "string")
    return { type: reader.string() ?? "", isWord: true, name: null, allowed: noTypes };
  if (reader.kind() !== "object") return null;
  let type = "";
  let name: string | null = null;
  let allowed = noTypes;
  reader.object((key) => {
    if (key === "type") type = reader.string() ?? "";
    else if (key === "name") name = reader.string() ?? null;
    else if (key === "tools") allowed = readAllowed(["tool_choice", key]);
    // Chat has mode and tools in an object of their own.
    else if (key === "allowed_tools" && reader.kind() === "object")
      reader.object((inner) => {
        if (inner === "tools") allowed = readAllowed(["tool_choice", key, inner]);
      });
  });
  return { type, isWord: false, name, allowed };
}

const noTypes: readonly string[] = [];

function readTypes(reader: JsonReader): readonly string[] {
  if (reader.kind() !== "array") return noTypes;
  const types: string[] = [];
  reader.array(() => {
    if (reader.kind() !== "object") return;
    reader.object((key) => {
      if (key === "type") types.push(reader.string() ?? "");
    });
  });
  return types;
}
