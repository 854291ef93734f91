/** Content parts of Chat and Responses clients, as far as both are read in the same way. */
import { hasBreakpoint } from "./cache-breakpoints.ts";
import type { Cursor } from "./cursor.ts";
import type { ContentBlockParam } from "./messages/types.ts";

/**
 * Content that may hold text alone: a string, or a list of text (and, for an assistant, refusal) parts.
 * @param isText whether a part of this type is text.
 * @throws ApiError naming another part.
 */
export function readTexts(message: Cursor, isText: (type: string) => boolean): readonly string[] {
  const content = message.content("content") ?? message.missing("content");
  if (typeof content === "string") return [content];
  return content.map((part) => {
    const type = part.requiredText("type");
    if (isText(type)) return part.requiredText("text");
    if (type === "refusal") return part.requiredText("refusal");
    return failPart(part, type, "allowed here");
  });
}

/** Content of any parts in the field `key`; a single text is a string, as a client would write it in Messages. */
export function readParts(
  message: Cursor,
  key: string,
  readPart: (part: Cursor) => ContentBlockParam,
): string | ContentBlockParam[] {
  const content = message.content(key) ?? message.missing(key);
  if (typeof content === "string") return content;
  const blocks = content.map(readPart);
  const [only] = blocks;
  return blocks.length === 1 && only?.type === "text" && !hasBreakpoint(only) ? only.text : blocks;
}

/** @throws ApiError always: the part is of a type that is not `what`. */
export const failPart = (part: Cursor, type: string, what: "supported" | "allowed here"): never =>
  part.fail("type", `content parts of type ${type.slice(0, 40)} are not ${what}`, "unsupported_content");
