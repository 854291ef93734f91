/**
 * A tool call's arguments are text in Chat and Responses and an object in the hub. The text that an object was
 * read from is remembered beside it and written again as it was: re-encoding would change whitespace and break
 * the upstream's prompt cache, and round integers beyond 2^53.
 */
import { isObject } from "../lib/json-object.ts";
import { MAX_JSON_DEPTH } from "../lib/json-reader.ts";
import type { Cursor } from "./cursor.ts";
import { isDeeperThan } from "./fields.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** Not enumerable, so neither copied nor written. A WeakMap would cost the collector 30 µs for each call. */
const TEXT = Symbol("arguments");

/** Parses a call's arguments: `""` is `{}`. Null when the text is not a JSON object. */
export function parseArguments(text: string): JsonObject | null {
  if (text.trim() === "") return {};
  try {
    const value = JSON.parse(text) as JsonValue;
    return isObject(value) ? rememberText(text, value) : null;
  } catch {
    return null;
  }
}

/** Makes an empty object that is written as `text`, to pass on arguments that are not a JSON object. */
export const unreadArguments = (text: string): JsonObject => rememberText(text, {});

/** Remembers the text that `value` was read from, and returns `value`. */
export const rememberText = (text: string, value: JsonObject): JsonObject =>
  Object.defineProperty(value, TEXT, { value: text });

/** Returns the text that arguments were read from; undefined where none was remembered. */
export const argumentsText = (input: JsonObject & { readonly [TEXT]?: string }): string | undefined =>
  input[TEXT];

/** Reads the arguments of a call in a client's history. @throws ApiError naming the field (rule 2.7). */
export function readArguments(call: Cursor): JsonObject {
  const key = "arguments";
  const input = parseArguments(call.text(key) ?? "");
  if (input === null) return call.fail(key, "Input should be the text of a JSON object");
  return isDeeperThan(input, MAX_JSON_DEPTH) ? call.fail(key, "the object nests too deep") : input;
}

/** Writes arguments as the text that they were read from, else as the shortest JSON. */
export const writeArguments = (input: JsonObject): string => argumentsText(input) ?? JSON.stringify(input);
