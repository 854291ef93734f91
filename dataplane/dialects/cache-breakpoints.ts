/**
 * Where a client of Chat or Responses wants its prompt cached (rule 2.1): both may say it at a part of what a user says. In the
 * hub it stands beside the block that the part becomes.
 */
import type { Cursor } from "./cursor.ts";
import type { ContentBlockParam, JsonObject, JsonValue } from "./messages/types.ts";

const FIELD = "prompt_cache_breakpoint";

const breakpoints = new WeakMap<ContentBlockParam, JsonValue>();

/** Remembers what the part says that the block is read from. */
export function withBreakpoint(block: ContentBlockParam, part: Cursor): ContentBlockParam {
  const breakpoint = part.get(FIELD);
  if (breakpoint !== undefined) breakpoints.set(block, breakpoint);
  return block;
}

export const hasBreakpoint = (block: ContentBlockParam): boolean => breakpoints.has(block);

/** The parts that a block became; the cache ends behind the last one. */
export function markBreakpoint(parts: JsonObject[], block: ContentBlockParam): JsonObject[] {
  const breakpoint = breakpoints.get(block);
  const last = parts.at(-1);
  if (breakpoint === undefined || last === undefined) return parts;
  return parts.with(parts.length - 1, { ...last, [FIELD]: breakpoint });
}
