/**
 * Schemas of tools and of structured output keep the digits of numbers that a double cannot hold: bounds such as
 * 2^63 - 1 are usual in those that programs write, and a rounded one lies outside of what it bounds.
 */
import { JsonFault, JsonReader } from "../lib/json-reader.ts";
import { isRounded, keepDigits } from "./exact-numbers.ts";
import { arrayOf, objectOf } from "./fields.ts";
import type { JsonObject } from "./messages/types.ts";

/** Fields of a request, in all dialects, that hold schemas; `input` where it declares further tools. */
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
  if (rounded.size === 0) return;
  try {
    const reader = new JsonReader(bytes);
    reader.object((key) => {
      if (!rounded.has(key)) return;
      if (key === "input") keepAdditionalTools(request, reader);
      else keepDigits(request[key], reader, isOwnData);
    });
  } catch (fault) {
    // JSON.parse is less strict; what it took stays as it was understood.
    if (!(fault instanceof JsonFault)) throw fault;
  }
}

/** Those that Codex declares in the conversation. */
function keepAdditionalTools(request: JsonObject, reader: JsonReader): void {
  const items = arrayOf(request["input"]);
  if (items === null) return;
  reader.array((index) => {
    const item = objectOf(items[index]);
    if (item?.["type"] !== "additional_tools") return;
    reader.object((key) => {
      if (key === "tools") keepDigits(item[key], reader, isOwnData);
    });
  });
}
