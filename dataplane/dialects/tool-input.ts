/** The JSON that a model wrote as a tool's arguments (rule 2.7, dialects.md §D1). */
import { parseArguments } from "./arguments.ts";
import { objectOf, parseJson } from "./fields.ts";
import type { JsonObject } from "./messages/types.ts";
import { corruptAnswer } from "./upstream-error.ts";

/** Nothing at all means no arguments. @throws ApiError `upstream_error` when it is not a JSON object. */
export function toolInput(json: string): JsonObject {
  const input = parseArguments(json);
  if (input === null) throw corruptAnswer("tool arguments are not a JSON object");
  return input;
}

/** Whether nothing but white space can still follow. */
export function isWholeInput(json: string): boolean {
  return json.trimEnd().endsWith("}") && objectOf(parseJson(json)) !== null;
}
