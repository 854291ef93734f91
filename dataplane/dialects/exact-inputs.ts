/**
 * Keeps the digits of numbers that a double cannot hold (ids beyond 2^53) in tool inputs of Messages form, which are
 * objects: the text of such an input is read from the body again and remembered, as other dialects' arguments are.
 */
import { JsonFault, JsonReader } from "../lib/json-reader.ts";
import { argumentsText, rememberText } from "./arguments.ts";
import { isRounded, keepDigits } from "./exact-numbers.ts";
import { arrayOf, objectOf, parseJson } from "./fields.ts";
import type { JsonObject } from "./messages/types.ts";

/**
 * Remembers the texts of inputs with such numbers.
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
    // JSON.parse accepts more than `JsonReader`: the rest of such a body stays rounded.
    if (!(fault instanceof JsonFault)) throw fault;
  }
}

/** Returns the input as it is written: JSON.stringify gives its numbers all of their digits. */
export function exactInput(input: JsonObject): JsonObject {
  const text = argumentsText(input);
  if (text === undefined || !isRounded(input)) return input;
  const exact = objectOf(parseJson(text));
  if (exact === null) return input;
  try {
    keepDigits(exact, new JsonReader(Buffer.from(text)));
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
  }
  return exact;
}

const blocksOf = (turn: JsonObject | null) => (arrayOf(turn?.["content"]) ?? []).map(objectOf);

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
