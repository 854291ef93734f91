/**
 * Puts late results of a resent conversation behind their calls: an answer that ran calls which an earlier one left
 * pending begins with their results (rule 3.6). Pure.
 */
import { serverToolBlocks } from "../dialects/find-server-tool.ts";
import type { JsonValue } from "../dialects/messages/types.ts";
import type { PathStep } from "../lib/field-path.ts";
import { isObject } from "../lib/json-object.ts";

export interface PlacedBlock {
  readonly block: JsonValue;
  /** Path of the block at the client. */
  readonly here: readonly PathStep[];
}

/** Returns, by index, the blocks of each assistant message that is a list, with late results of its calls. */
export function placeBlocks(messages: readonly JsonValue[]): ReadonlyMap<number, readonly PlacedBlock[]> {
  const placed = new Map<number, PlacedBlock[]>();
  /** The blocks around each call without a result, by the call's id. */
  const homes = new Map<string, PlacedBlock[]>();
  for (const [index, message] of messages.entries()) {
    if (!isObject(message) || message["role"] !== "assistant" || !Array.isArray(message["content"])) continue;
    const blocks: PlacedBlock[] = [];
    placed.set(index, blocks);
    for (const [at, block] of message["content"].entries()) {
      const entry = { block, here: ["messages", index, "content", at] };
      const calls = callOf(block);
      if (calls !== null) homes.set(calls, blocks);
      const answers = answeredBy(block);
      const home = (answers === null ? undefined : homes.get(answers)) ?? blocks;
      if (answers !== null) homes.delete(answers);
      home.push(entry);
    }
  }
  return placed;
}

/** The id of a server tool's call; null: it is none. */
function callOf(block: JsonValue): string | null {
  if (!isObject(block) || block["type"] !== "server_tool_use") return null;
  return typeof block["id"] === "string" ? block["id"] : null;
}

/** The id of the call that a server tool's result answers; null: it is none. */
function answeredBy(block: JsonValue): string | null {
  if (!isObject(block) || typeof block["type"] !== "string") return null;
  if (block["type"] === "server_tool_use" || !serverToolBlocks.has(block["type"])) return null;
  return typeof block["tool_use_id"] === "string" ? block["tool_use_id"] : null;
}
