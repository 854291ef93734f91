/** Puts tool results behind the calls that they belong to. Pure. */
import type { JsonObject, JsonValue, ToolResultBlock } from "../dialects/messages/types.ts";
import { isObject } from "../lib/json-object.ts";

/**
 * Adds the results of calls that were run now to the conversation, each right after the turn that made the call, before
 * anything that the client says there. A result without its call goes before the client's last turn.
 */
export function addResults(messages: readonly JsonValue[], results: readonly ToolResultBlock[]): JsonValue[] {
  const callers = callersOf(messages, new Set(results.map((result) => result.tool_use_id)));
  const lastTurn = messages.length - (isUser(messages.at(-1)) ? 2 : 1);
  const behind = new Map<number, JsonObject[]>();
  for (const result of results) {
    const caller = callers.get(result.tool_use_id) ?? lastTurn;
    const block = { ...result } as unknown as JsonObject;
    const known = behind.get(caller);
    if (known === undefined) behind.set(caller, [block]);
    else known.push(block);
  }
  return resultsBehind(messages, behind);
}

/** @param behind the results to add, by the index of the turn that they stand behind; -1: before the first. */
export function resultsBehind(
  messages: readonly JsonValue[],
  behind: ReadonlyMap<number, JsonObject[]>,
): JsonValue[] {
  const out: JsonValue[] = [];
  for (let index = 0; index <= messages.length; index += 1) {
    const results = behind.get(index - 1);
    const message = messages[index];
    if (results === undefined) {
      if (message !== undefined) out.push(message);
    } else if (isUser(message)) out.push({ ...message, content: [...results, ...saidIn(message)] });
    else out.push({ role: "user", content: results }, ...(message === undefined ? [] : [message]));
  }
  return out;
}

/** Finds for each call id the last message that makes the call. */
function callersOf(messages: readonly JsonValue[], ids: ReadonlySet<string>): ReadonlyMap<string, number> {
  const callers = new Map<string, number>();
  for (const [index, message] of messages.entries()) {
    if (!isObject(message) || !Array.isArray(message["content"])) continue;
    for (const block of message["content"]) {
      const id = isObject(block) && block["type"] === "tool_use" ? block["id"] : null;
      if (typeof id === "string" && ids.has(id)) callers.set(id, index);
    }
  }
  return callers;
}

const isUser = (message: JsonValue | undefined): message is JsonObject =>
  isObject(message) && message["role"] === "user";

function saidIn({ content }: JsonObject): JsonValue[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return Array.isArray(content) ? content : [];
}
