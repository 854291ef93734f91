/**
 * Tool inputs of Messages form, which are objects, keep the digits of numbers that a double cannot hold (ids beyond
 * 2^53): where such a number stands, the input's text is looked up in the body that it was parsed from, and
 * remembered as that of other dialects' arguments is.
 */
import { JsonFault, JsonReader, MAX_JSON_DEPTH } from "../lib/json-reader.ts";
import { argumentsText, rememberText } from "./arguments.ts";
import { arrayOf, objectOf } from "./fields.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** What TypeScript does not know yet of ECMAScript's "JSON.parse source text access". */
const exactJson = JSON as unknown as {
  parse(
    text: string,
    revive: (key: string, value: JsonValue, context: { readonly source?: string }) => JsonValue,
  ): JsonObject;
  /** Stands for a number, and is written as `text`. */
  rawJSON(text: string): JsonValue;
};

/**
 * Remembers the inputs' texts.
 * @param message a request or an answer in Messages form, as it was parsed from `bytes`.
 */
export function rememberInputs(message: JsonObject, bytes: Buffer): void {
  const turns = arrayOf(message["messages"])?.map(objectOf) ?? [message];
  if (!turns.some((turn) => blocksOf(turn).some((block) => isRounded(block?.["input"])))) return;
  try {
    const reader = new JsonReader(bytes);
    if (message["messages"] === undefined) return readTurn(reader, message);
    reader.object((key) => {
      if (key === "messages") reader.array((index) => readTurn(reader, turns[index] ?? null));
    });
  } catch (fault) {
    // JSON.parse is less strict; what it took stays as it was understood.
    if (!(fault instanceof JsonFault)) throw fault;
  }
}

/** The same input, to be written: JSON.stringify gives its numbers all of their digits. */
export function exactInput(input: JsonObject): JsonObject {
  const text = argumentsText(input);
  if (text === undefined || !isRounded(input)) return input;
  return exactJson.parse(text, (_key, value, { source }) => {
    const isOther = typeof value === "number" && source !== undefined && source !== String(value);
    return isOther && isRounded(value) ? exactJson.rawJSON(source) : value;
  });
}

const blocksOf = (turn: JsonObject | null) => (arrayOf(turn?.["content"]) ?? []).map(objectOf);

/** Whether a number in it may have had other digits than it has now. */
function isRounded(value: JsonValue | undefined, depth = MAX_JSON_DEPTH): boolean {
  if (typeof value === "number")
    return !Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value));
  if (typeof value !== "object" || value === null || depth === 0) return false;
  return Object.values(value).some((inner) => isRounded(inner, depth - 1));
}

function readTurn(reader: JsonReader, turn: JsonObject | null): void {
  if (reader.kind() !== "object") return;
  const blocks = blocksOf(turn);
  reader.object((key) => {
    if (key === "content" && reader.kind() === "array")
      reader.array((index) => readBlock(reader, blocks[index] ?? null));
  });
}

function readBlock(reader: JsonReader, block: JsonObject | null): void {
  if (reader.kind() !== "object") return;
  const input = objectOf(block?.["input"]);
  reader.object((key) => {
    if (key !== "input" || input === null || reader.kind() !== "object") return;
    const start = reader.position;
    reader.skip();
    if (isRounded(input)) rememberText(reader.bytes.toString("utf8", start, reader.position), input);
  });
}
