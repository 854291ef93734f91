/**
 * Schemas of tools and of structured output keep the digits of numbers that a double cannot hold: bounds such as
 * 2^63 - 1 are usual in those that programs write, and a rounded one lies outside of what it bounds.
 */
import { JsonFault, JsonReader } from "../lib/json-reader.ts";
import { isRounded, parseExact } from "./exact-numbers.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** Fields of a request, in all dialects, that hold schemas. */
const holders = ["tools", "functions", "output_config", "output_format", "response_format", "text"];
/** What of them is the client's own data, which is handed on as it is and never read as a number. */
const ownData = new Set(["input_schema", "parameters", "schema", "input_examples"]);

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
      reader.kind();
      const start = reader.position;
      reader.skip();
      adopt(request[key], parseExact(bytes.toString("utf8", start, reader.position)));
    });
  } catch (fault) {
    // JSON.parse is less strict; what it took stays as it was understood.
    if (!(fault instanceof JsonFault)) throw fault;
  }
}

/** @param exact the same value. */
function adopt(value: JsonValue | undefined, exact: JsonValue | undefined): void {
  if (!isContainer(value) || !isContainer(exact)) return;
  for (const [key, inner] of Object.entries(exact)) {
    if (!isContainer(value[key])) continue;
    if (ownData.has(key)) value[key] = inner;
    else adopt(value[key], inner);
  }
}

/** A list is looked at as an object whose members are its indexes. */
const isContainer = (value: JsonValue | undefined): value is JsonObject =>
  typeof value === "object" && value !== null;
