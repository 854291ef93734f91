/** Numbers that a double cannot hold: ids and bounds beyond 2^53, and what is beyond every double. */
import { MAX_JSON_DEPTH } from "../lib/json-reader.ts";
import type { JsonValue } from "./messages/types.ts";

/** What TypeScript does not know yet of ECMAScript's "JSON.parse source text access". */
const exactJson = JSON as unknown as {
  parse(
    text: string,
    revive: (key: string, value: JsonValue, context: { readonly source?: string }) => JsonValue,
  ): JsonValue;
  /** Stands for a number, and is written as `text`. */
  rawJSON(text: string): JsonValue;
};

/** Whether a number in it may have had other digits than it has now. */
export function isRounded(value: JsonValue | undefined, depth = MAX_JSON_DEPTH): boolean {
  if (typeof value === "number")
    return !Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value));
  if (typeof value !== "object" || value === null || depth === 0) return false;
  return Object.values(value).some((inner) => isRounded(inner, depth - 1));
}

/** The value of a JSON text, to be written: JSON.stringify gives its numbers all of their digits. */
export const parseExact = (text: string): JsonValue =>
  exactJson.parse(text, (_key, value, { source }) => {
    const isOther = typeof value === "number" && source !== undefined && source !== String(value);
    return isOther && isRounded(value) ? exactJson.rawJSON(source) : value;
  });
