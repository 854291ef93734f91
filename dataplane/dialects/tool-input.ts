/** The JSON that a model wrote as a tool's arguments (rule 2.7, dialects.md §D1). */
import { argumentsText, parseArguments, unreadArguments } from "./arguments.ts";
import type { CodecContext } from "./codecs.ts";
import { MAX_JSON_DEPTH } from "../lib/json-reader.ts";
import { isDeeperThan, objectOf, parseJson } from "./fields.ts";
import type { ContentBlock, JsonObject } from "./messages/types.ts";
import { corruptAnswer } from "./upstream-error.ts";

/** Calls of one answer, and of a resent one that are still to be run: more of them only a broken or hostile peer makes. */
export const MAX_CALLS = 1_024;

type ServerToolNames = CodecContext["serverTools"];

/**
 * Nothing at all means no arguments, but for the call that the output limit cut.
 * @param name the tool's; what a server tool is called with is the loop's to refuse: to the model, not to the client
 *   (service.md "Errors of tools").
 * @param isCut the output limit ended the answer with this call (dialects.md §D3).
 * @throws ApiError `upstream_error` when it is not a JSON object.
 */
export function toolInput(json: string, name = "", serverTools?: ServerToolNames, isCut = false): JsonObject {
  if (isCut && !isWholeInput(json)) return unreadArguments(json);
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

/** Whether a call's arguments were cut: what came of them is their text. */
export function isUnfinished(input: JsonObject): boolean {
  const json = argumentsText(input);
  return json !== undefined && !isWholeInput(json);
}

/** Whether an answer calls tools, and was not cut in its last call. `isCut`: the output limit ended it. */
export function callsTools(content: readonly ContentBlock[], isCut: boolean): boolean {
  const last = content.at(-1);
  if (isCut && last?.type === "tool_use" && isUnfinished(last.input)) return false;
  return content.some(({ type }) => type === "tool_use");
}

/** Whether nothing but white space can still follow. */
export function isWholeInput(json: string): boolean {
  return json.trimEnd().endsWith("}") && objectOf(parseJson(json)) !== null;
}
