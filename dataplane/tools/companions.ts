/**
 * Judges what may accompany server tools in a Chat or Responses request
 * (service.md "What a request with server tools may hold", rules 3.1–3.3). Pure.
 */
import { isServerToolName, serverToolItems } from "../dialects/find-server-tool.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import type { JsonObject, JsonValue } from "../dialects/messages/types.ts";
import type { PathStep } from "../lib/field-path.ts";
import { entriesOf, type DeclarationReader } from "./declaration-reader.ts";

/** Client tools that may not accompany a server tool (service.md "What a request with server tools may hold"). */
const REFUSED_BESIDE = new Set(["custom", "local_shell", "apply_patch", "shell"]);
/** Input items that have a Messages form; the hosted ones were refused before. */
const ORDINARY_ITEMS = new Set([
  "message",
  "function_call",
  "function_call_output",
  "reasoning",
  "compaction",
  "compaction_trigger",
  "item_reference",
  "additional_tools",
  ...serverToolItems,
]);

/** Tools with their paths. */
export type DeclaredTools = readonly (readonly [readonly PathStep[], JsonObject])[];

/** Judges the client tools next to a server tool; returns true when the client declares its own `web_fetch`. */
export function judgeCompanions(
  reader: DeclarationReader,
  tools: DeclaredTools,
  declared: ReadonlySet<ServerToolName>,
): boolean {
  let ownFetch = false;
  for (const [steps, { type, name }] of tools) {
    if (typeof type === "string" && REFUSED_BESIDE.has(type)) {
      reader.fail("unsupported_tool", [...steps, "type"], "only function tools may accompany server tools");
    }
    if (type !== "function") continue;
    if (isServerToolName(name) && declared.has(name)) {
      reader.fail(
        "invalid_request_error",
        [...steps, "name"],
        `"${name}" is the name of a declared server tool`,
      );
    }
    if (name === "web_fetch") ownFetch = true;
  }
  return ownFetch;
}

/** Refuses input items that cannot accompany server tools. @throws ApiError naming the item */
export function refuseItems(reader: DeclarationReader, input: JsonValue | undefined): void {
  for (const [index, { type }] of entriesOf(input)) {
    if (typeof type === "string" && !ORDINARY_ITEMS.has(type)) {
      reader.fail(
        "unsupported_content",
        ["input", index, "type"],
        `"${type}" items cannot accompany server tools`,
      );
    }
  }
  refuseParts(reader, input, ["input"], new Set(["input_file", "input_audio"]));
  refuseParts(reader, input, ["input"], new Set(["input_file", "input_audio"]), "output");
}

/** Refuses content but text and images on the translation path (service.md "What a request with server tools may hold"). */
export function refuseParts(
  reader: DeclarationReader,
  turns: JsonValue | undefined,
  at: readonly PathStep[],
  refused: ReadonlySet<string>,
  key: "content" | "output" = "content",
): void {
  for (const [index, turn] of entriesOf(turns)) {
    for (const [part, { type }] of entriesOf(turn[key])) {
      if (typeof type !== "string" || !refused.has(type)) continue;
      reader.fail(
        "unsupported_content",
        [...at, index, key, part, "type"],
        `"${type}" is not supported when a server tool is used`,
      );
    }
  }
}
