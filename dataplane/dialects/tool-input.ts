/** The JSON that a model wrote as a tool's arguments (rule 2.7, dialects.md §D1). */
import { parseArguments } from "./arguments.ts";
import { MAX_JSON_DEPTH } from "../lib/json-reader.ts";
import { isDeeperThan, objectOf, parseJson } from "./fields.ts";
import type { JsonObject } from "./messages/types.ts";
import { corruptAnswer } from "./upstream-error.ts";

/** Nothing at all means no arguments. @throws ApiError `upstream_error` when it is not a JSON object. */
export function toolInput(json: string): JsonObject {
  const input = parseArguments(json);
  if (input === null) throw corruptAnswer("tool arguments are not a JSON object");
  return bounded(input);
}

/** The same value, unless nobody could write it or send it back. @throws ApiError `upstream_error` */
export function bounded<Value extends object>(value: Value): Value {
  if (isDeeperThan(value, MAX_JSON_DEPTH)) throw corruptAnswer("an answer that nests too deep");
  return value;
}

/** Arguments that some servers send parsed; null when they are not. */
export function parsedInput(value: unknown): JsonObject | null {
  const input = objectOf(value);
  return input === null ? null : bounded(input);
}

/** Whether nothing but white space can still follow. */
export function isWholeInput(json: string): boolean {
  return json.trimEnd().endsWith("}") && objectOf(parseJson(json)) !== null;
}
