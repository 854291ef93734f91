/** The part of a look that reads `tools` and `tool_choice`. */
import type { PathStep } from "../lib/field-path.ts";
import type { JsonReader, Span } from "../lib/json-reader.ts";

/** An entry of `tools`, as far as judging it needs. */
export interface ToolEntry extends Span {
  readonly path: readonly PathStep[];
  readonly type: string | null;
  readonly name: string | null;
  /** `external_web_access: false`: counts as not declared (dialects.md §H3). */
  readonly offline: boolean;
  /** A shell in a container of the upstream's. */
  readonly container: boolean;
  /** `execution: "client"`: the client runs what is otherwise run by the provider. */
  readonly clientRun: boolean;
  /** Everything that stands in the same array, and which of it this is; for cutting it out. */
  readonly siblings: readonly Span[];
  readonly index: number;
}

/** A `tool_choice` that is there. */
export interface ToolChoice {
  /** The word, or the object's `type`. */
  readonly type: string;
  readonly name: string | null;
  /** Types of the tools that an `allowed_tools` choice lists. */
  readonly allowed: readonly string[];
}

/** Reads a `tools` array into entries. */
export function readTools(reader: JsonReader, path: readonly PathStep[], tools: ToolEntry[]): void {
  if (reader.kind() !== "array") return;
  const siblings: Span[] = [];
  reader.array((index) => {
    const kind = reader.kind();
    const start = reader.position;
    if (kind !== "object") {
      reader.skip();
      siblings.push({ start, end: reader.position });
      return;
    }
    const entry = {
      type: null as string | null,
      name: null as string | null,
      offline: false,
      container: false,
      clientRun: false,
    };
    const nested: ToolEntry[] = [];
    reader.object((key) => {
      if (key === "type") entry.type = reader.string() ?? null;
      else if (key === "name") entry.name = reader.string() ?? null;
      else if (key === "external_web_access") entry.offline = reader.boolean() === false;
      else if (key === "execution") entry.clientRun = reader.string() === "client";
      else if (key === "tools") readTools(reader, [...path, index, key], nested);
      else if (key === "environment" || key === "container") entry.container = isContainer(reader);
    });
    const span: Span = { start, end: reader.position };
    siblings.push(span);
    tools.push({ ...entry, ...span, path: [...path, index], siblings, index }, ...nested);
  });
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

export function readToolChoice(reader: JsonReader): ToolChoice | null {
  if (reader.kind() === "string") return { type: reader.string() ?? "", name: null, allowed: noTypes };
  if (reader.kind() !== "object") return null;
  let type = "";
  let name: string | null = null;
  let allowed = noTypes;
  reader.object((key) => {
    if (key === "type") type = reader.string() ?? "";
    else if (key === "name") name = reader.string() ?? null;
    else if (key === "tools") allowed = readTypes(reader);
    // Chat has mode and tools in an object of their own.
    else if (key === "allowed_tools" && reader.kind() === "object")
      reader.object((inner) => {
        if (inner === "tools") allowed = readTypes(reader);
      });
  });
  return { type, name, allowed };
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
