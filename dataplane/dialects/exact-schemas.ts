/**
 * Keeps the digits of numbers that a double cannot hold in schemas of tools and of structured output: bounds such as
 * 2^63 - 1 are usual in generated schemas, and a rounded one lies outside of what it bounds.
 */
import { JsonFault, JsonReader } from "../lib/json-reader.ts";
import { isRounded, keepDigits } from "./exact-numbers.ts";
import { arrayOf, objectOf } from "./fields.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** Fields of a request, in all dialects, that hold schemas; `input` where it declares further tools, as `messages` may. */
const holders = ["tools", "functions", "output_config", "output_format", "response_format", "text", "input"];
/** Members of these fields that are the client's own data: passed on as they are and never read as numbers. */
const ownData = new Set(["input_schema", "parameters", "schema", "input_examples"]);
const isOwnData = (key: string): boolean => ownData.has(key);

/**
 * Restores the digits of such numbers in a request's schemas.
 * @param request in any dialect, as it was parsed from `bytes`.
 */
export function keepSchemas(request: JsonObject, bytes: Buffer): void {
  const rounded = new Set(holders.filter((name) => isRounded(request[name])));
  if (isRounded((arrayOf(request["messages"]) ?? []).filter(isSystemTurn))) rounded.add("messages");
  if (rounded.size === 0) return;
  try {
    const reader = new JsonReader(bytes);
    reader.object((key) => {
      if (!rounded.has(key)) return;
      if (key === "input" || key === "messages") keepToolsOfTurns(request[key], reader);
      else keepDigits(request[key], reader, isOwnData);
    });
  } catch (fault) {
    // JSON.parse accepts more than `JsonReader`: the rest of such a body stays rounded.
    if (!(fault instanceof JsonFault)) throw fault;
  }
}

const isSystemTurn = (turn: JsonValue): boolean => objectOf(turn)?.["role"] === "system";

/** Restores them in tools of the conversation: Codex' `additional_tools` items, and definitions in system turns of Messages. */
function keepToolsOfTurns(conversation: JsonValue | undefined, reader: JsonReader): void {
  const turns = arrayOf(conversation);
  if (turns === null) return;
  reader.array((index) => {
    const turn = objectOf(turns[index]);
    const holder = turn?.["type"] === "additional_tools" ? "tools" : "content";
    if (turn === null || (holder === "content" && !isSystemTurn(turn))) return;
    reader.object((key) => {
      if (key === holder) keepDigits(turn[key], reader, isOwnData);
    });
  });
}
