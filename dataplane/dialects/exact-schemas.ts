/**
 * Schemas of tools and of structured output keep the digits of numbers that a double cannot hold: bounds such as
 * 2^63 - 1 are usual in those that programs write, and a rounded one lies outside of what it bounds.
 */
import { JsonFault, JsonReader } from "../lib/json-reader.ts";
import { isRounded, keepDigits } from "./exact-numbers.ts";
import { arrayOf, objectOf } from "./fields.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** Fields of a request, in all dialects, that hold schemas; `input` where it declares further tools, as `messages` may. */
const holders = ["tools", "functions", "output_config", "output_format", "response_format", "text", "input"];
/** What of them is the client's own data, which is handed on as it is and never read as a number. */
const ownData = new Set(["input_schema", "parameters", "schema", "input_examples"]);
const isOwnData = (key: string): boolean => ownData.has(key);

/**
 * Puts such numbers back into the schemas.
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
    // JSON.parse is less strict; what it took stays as it was understood.
    if (!(fault instanceof JsonFault)) throw fault;
  }
}

const isSystemTurn = (turn: JsonValue): boolean => objectOf(turn)?.["role"] === "system";

/** Those that stand in the conversation: Codex' `additional_tools` items, and definitions in system turns of Messages. */
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
