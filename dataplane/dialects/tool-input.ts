/** The JSON that a model wrote as a tool's arguments (rule 2.7, dialects.md §D1). */
import { argumentsText, parseArguments, unreadArguments } from "./arguments.ts";
import type { CodecContext } from "./codecs.ts";
import { BACKSLASH, CLOSE_ARRAY, CLOSE_OBJECT, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from "../lib/json-bytes.ts";
import { MAX_JSON_DEPTH } from "../lib/json-reader.ts";
import { isDeeperThan, objectOf, parseJson } from "./fields.ts";
import type { ContentBlock, JsonObject } from "./messages/types.ts";
import { corruptAnswer } from "./upstream-error.ts";

/** Most calls of one answer, and of a resent one still to be run: only a broken or hostile peer makes more. */
export const MAX_CALLS = 1_024;

type ServerToolNames = CodecContext["serverTools"];

/**
 * Reads a tool's arguments. Empty text means no arguments, except in the call that the output limit cut.
 * @param name the tool's; the loop refuses wrong arguments of a server tool to the model, not to the client (service.md
 *   "Errors of tools").
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

/** Returns the value, unless it nests too deep to be written or sent back. @throws ApiError `upstream_error` */
export function boundedInput<Value extends object>(value: Value): Value {
  if (isDeeperThan(value, MAX_JSON_DEPTH)) throw corruptAnswer("an answer that nests too deep");
  return value;
}

/** Returns arguments that a server sent as an object; null when they are none. */
export function parsedInput(value: unknown): JsonObject | null {
  const input = objectOf(value);
  return input === null ? null : boundedInput(input);
}

/** Whether a call's arguments were cut: their remembered text is no whole JSON object. */
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

/**
 * Tells when arguments that come in pieces end: where the first bracket that they open is closed. What is no JSON object then
 * will be none, whatever comes behind it.
 */
export class InputEnd {
  #depth = 0;
  #inString = false;
  #isEscaped = false;

  /** Looks at a piece. @returns whether the end is in it. */
  add(text: string): boolean {
    // Local copies: they are compared with every character.
    let [depth, inString, isEscaped] = [this.#depth, this.#inString, this.#isEscaped];
    for (let at = 0; at < text.length; at += 1) {
      const code = text.charCodeAt(at);
      if (isEscaped) isEscaped = false;
      else if (code === QUOTE) inString = !inString;
      else if (inString) isEscaped = code === BACKSLASH;
      else if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth += 1;
      else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
        depth -= 1;
        if (depth <= 0) return true;
      }
    }
    [this.#depth, this.#inString, this.#isEscaped] = [depth, inString, isEscaped];
    return false;
  }
}

/** Whether the text is a whole JSON object. */
export function isWholeInput(json: string): boolean {
  return json.trimEnd().endsWith("}") && objectOf(parseJson(json)) !== null;
}
