/** Results beside the calls that they belong to. Pure. */
import type { JsonObject, JsonValue, ToolResultBlock } from "../dialects/messages/types.ts";
import { isObject } from "../lib/json-object.ts";

/**
 * Adds the results of calls that were run now to the conversation: each right after the turn that made the call,
 * before anything that the client says there.
 */
export function addResults(messages: readonly JsonValue[], results: readonly ToolResultBlock[]): JsonValue[] {
  return results.reduceRight<JsonValue[]>(addResult, [...messages]);
}

function addResult(messages: readonly JsonValue[], result: ToolResultBlock): JsonValue[] {
  const block = { ...result } as unknown as JsonObject;
  const caller = messages.findLastIndex((message) => makesCall(message, result.tool_use_id));
  const lastIsUser = isObject(messages.at(-1)) && (messages.at(-1) as JsonObject)["role"] === "user";
  const at = caller === -1 ? messages.length - (lastIsUser ? 1 : 0) : caller + 1;
  const next = messages[at];
  if (!isObject(next) || next["role"] !== "user")
    return messages.toSpliced(at, 0, { role: "user", content: [block] });
  const { content } = next;
  const said = typeof content === "string" ? [{ type: "text", text: content }] : (content ?? []);
  return messages.with(at, { ...next, content: [block, ...(Array.isArray(said) ? said : [])] });
}

/** Whether this message is the turn in which the model made that call. */
export const makesCall = (message: JsonValue, id: string): boolean =>
  isObject(message) &&
  Array.isArray(message["content"]) &&
  message["content"].some((block) => isObject(block) && block["type"] === "tool_use" && block["id"] === id);
