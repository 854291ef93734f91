/** Numbers that a double cannot hold: ids and bounds beyond 2^53, and what is beyond every double. */
import { MAX_JSON_DEPTH, type JsonReader } from "../lib/json-reader.ts";
import type { JsonValue } from "./messages/types.ts";

/** ECMAScript's "JSON.parse source text access", which TypeScript does not know yet. */
const exactJson = JSON as unknown as {
  /** Makes a value that stands for a number and is written as `text`. */
  rawJSON(text: string): JsonValue;
};

/** From here on every double is an integer, and they are more than one apart. */
const ROUNDED_FROM = 2 ** 53;

/** Whether a number in `value` may have been rounded when it was parsed. */
export function isRounded(value: JsonValue | undefined, depth = MAX_JSON_DEPTH): boolean {
  if (typeof value === "number") return Math.abs(value) >= ROUNDED_FROM;
  if (typeof value !== "object" || value === null || depth === 0) return false;
  return Object.values(value).some((inner) => isRounded(inner, depth - 1));
}

/**
 * Replaces rounded numbers in an object or a list by their original digits, which JSON.stringify writes. Only these are
 * parsed again, as a text of a million numbers may hold one of them.
 * @param reader at the text that `value` was parsed from; behind it afterwards.
 * @param isWanted whether numbers below this member are replaced, where not all are; null: all are.
 * @throws JsonFault for a text that JSON.parse accepts and `reader` does not; numbers replaced before stay so.
 */
export function keepDigits(
  value: JsonValue | undefined,
  reader: JsonReader,
  isWanted: ((key: string) => boolean) | null = null,
): void {
  if (typeof value !== "object" || value === null) return reader.skip();
  // A list is treated as an object whose members are its indexes.
  const holder = value as { [key: string | number]: JsonValue };
  const visit = (key: string | number): void => {
    const inner = holder[key];
    if (typeof inner === "object" && inner !== null)
      keepDigits(inner, reader, typeof key === "string" && isWanted?.(key) === true ? null : isWanted);
    else if (isWanted === null && typeof inner === "number" && Math.abs(inner) >= ROUNDED_FROM) {
      reader.kind();
      const start = reader.position;
      reader.skip();
      const text = reader.bytes.toString("latin1", start, reader.position);
      // Of a repeated key the last value counts.
      const isSame = Number(text) === inner;
      if (isSame && text !== String(inner)) holder[key] = exactJson.rawJSON(text);
    }
  };
  const kind = reader.kind();
  if (kind === "object") reader.object(visit);
  else if (kind === "array") reader.array(visit);
}
