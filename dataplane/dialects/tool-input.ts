/** The JSON that a model wrote as a tool's arguments (rule 2.7, dialects.md §D1). */
import { parseArguments, unreadArguments } from "./arguments.ts";
import type { CodecContext } from "./codecs.ts";
import { MAX_JSON_DEPTH } from "../lib/json-reader.ts";
import { isDeeperThan, objectOf, parseJson } from "./fields.ts";
import type { JsonObject } from "./messages/types.ts";
import { corruptAnswer } from "./upstream-error.ts";

/** Calls of one answer, and of a resent one that are still to be run: more of them only a broken or hostile peer makes. */
export const MAX_CALLS = 1_024;

type ServerToolNames = CodecContext["serverTools"];

/**
 * Nothing at all means no arguments.
 * @param name the tool's; what a server tool is called with is the loop's to refuse: to the model, not to the client
 *   (service.md "Errors of tools").
 * @throws ApiError `upstream_error` when it is not a JSON object.
 */
export function toolInput(json: string, name = "", serverTools?: ServerToolNames): JsonObject {
  const input = parseArguments(json);
  if (input !== null) return boundedInput(input);
  if (serverTools?.has(name) === true) return unreadArguments(json);
  throw corruptAnswer("tool arguments are not a JSON object");
}

/** The same value, unless nobody could write it or send it back. @throws ApiError `upstream_error` */
export function boundedInput<Value extends object>(value: Value): Value {
  if (isDeeperThan(value, MAX_JSON_DEPTH)) throw corruptAnswer("an answer that nests too deep");
  return value;
}

/** Arguments that some servers send parsed; null when they are not. */
export function parsedInput(value: unknown): JsonObject | null {
  const input = objectOf(value);
  return input === null ? null : boundedInput(input);
}

/** Whether nothing but white space can still follow. */
export function isWholeInput(json: string): boolean {
  return json.trimEnd().endsWith("}") && objectOf(parseJson(json)) !== null;
}
