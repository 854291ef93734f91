/**
 * Cache breakpoints of Chat and Responses clients (rule 2.1), which both may set on a part of a user's content. In the
 * hub a breakpoint stands beside the block that the part becomes.
 */
import type { Cursor } from "./cursor.ts";
import type { ContentBlockParam, JsonObject, JsonValue } from "./messages/types.ts";

const FIELD = "prompt_cache_breakpoint";

const breakpoints = new WeakMap<ContentBlockParam, JsonValue>();

/** Remembers the breakpoint of the part that `block` is read from. */
export function withBreakpoint(block: ContentBlockParam, part: Cursor): ContentBlockParam {
  const breakpoint = part.get(FIELD);
  if (breakpoint !== undefined) breakpoints.set(block, breakpoint);
  return block;
}

export const hasBreakpoint = (block: ContentBlockParam): boolean => breakpoints.has(block);

/** Writes the block's breakpoint on the last of the parts that the block became. */
export function markBreakpoint(parts: JsonObject[], block: ContentBlockParam): JsonObject[] {
  const breakpoint = breakpoints.get(block);
  const last = parts.at(-1);
  if (breakpoint === undefined || last === undefined) return parts;
  return parts.with(parts.length - 1, { ...last, [FIELD]: breakpoint });
}
