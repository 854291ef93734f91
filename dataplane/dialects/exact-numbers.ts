/** Numbers that a double cannot hold: ids and bounds beyond 2^53, and what is beyond every double. */
import { MAX_JSON_DEPTH, type JsonReader } from "../lib/json-reader.ts";
import type { JsonValue } from "./messages/types.ts";

/** What TypeScript does not know yet of ECMAScript's "JSON.parse source text access". */
const exactJson = JSON as unknown as {
  /** Stands for a number, and is written as `text`. */
  rawJSON(text: string): JsonValue;
};

/** From here on integers are apart by more than one; what is no integer is smaller. */
const ROUNDED_FROM = 2 ** 53;

/** Whether a number in it may have had other digits than it has now. */
export function isRounded(value: JsonValue | undefined, depth = MAX_JSON_DEPTH): boolean {
  if (typeof value === "number") return Math.abs(value) >= ROUNDED_FROM;
  if (typeof value !== "object" || value === null || depth === 0) return false;
  return Object.values(value).some((inner) => isRounded(inner, depth - 1));
}

/**
 * Puts such numbers back into an object or a list, to be written: JSON.stringify gives them all of their digits. Only they are
 * read anew, as a text of a million numbers may hold one of them.
 * @param reader at the text that `value` was parsed from; behind it afterwards.
 * @param isWanted whether those below this member are put back, where the whole is not; null: all of them are.
 * @throws JsonFault where JSON.parse is less strict; what was put back by then stays.
 */
export function keepDigits(
  value: JsonValue | undefined,
  reader: JsonReader,
  isWanted: ((key: string) => boolean) | null = null,
): void {
  if (typeof value !== "object" || value === null) return reader.skip();
  // A list is looked at as an object whose members are its indexes.
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
      // Of a key that stands there twice the last one counts.
      const isSame = Number(text) === inner;
      if (isSame && text !== String(inner)) holder[key] = exactJson.rawJSON(text);
    }
  };
  const kind = reader.kind();
  if (kind === "object") reader.object(visit);
  else if (kind === "array") reader.array(visit);
}
