/** The common part of web_search and x_search: the query that a model writes, and the bounds of a result. Pure. */
import { shortened } from "../lib/first-units.ts";
import { decodeEntities } from "./web-fetch/extract/scan.ts";

export type JudgedQuery =
  | { readonly kind: "query"; readonly query: string }
  | {
      readonly kind: "error";
      readonly code: "invalid_tool_input" | "query_too_long";
      readonly detail: string;
    };

/** service.md "Limits". */
const MAX_QUERY_CHARACTERS = 400;
/** Results of one search at most, and of one whose caller names no number. */
export const MAX_RESULTS = 10;
const MAX_SNIPPET_CHARACTERS = 1_000;
const MAX_TITLE_CHARACTERS = 300;
const MAX_POST_START_CHARACTERS = 80;
const MAX_URL_LENGTH = 2_048;

/** Judges the tool input `{query: string}` that a model wrote. */
export function judgeQuery(input: unknown): JudgedQuery {
  const invalid = (detail: string): JudgedQuery => ({ kind: "error", code: "invalid_tool_input", detail });
  if (typeof input !== "object" || input === null || !Object.hasOwn(input, "query"))
    return invalid("no query");
  const { query } = input as { query: unknown };
  if (typeof query !== "string") return invalid("query is not a string");
  if (query.length > 2 * MAX_QUERY_CHARACTERS || Array.from(query).length > MAX_QUERY_CHARACTERS) {
    return { kind: "error", code: "query_too_long", detail: "over 400 characters" };
  }
  const plain = query
    .toWellFormed()
    .replace(/[\s\p{Cc}]+/gu, " ")
    .trim();
  return plain === "" ? invalid("empty query") : { kind: "query", query: plain };
}

/** Returns the plain text of a snippet that may hold tags and entities, such as `<strong>` around matching words. */
export function snippet(text: string | null | undefined): string {
  return shortened(withoutMarkup(text, MAX_SNIPPET_CHARACTERS), MAX_SNIPPET_CHARACTERS);
}

/** Returns a text without tags and entities, on one line; up to eight times as long as `limit`. */
function withoutMarkup(text: string | null | undefined, limit: number): string {
  // Cut first: an engine may send megabytes.
  const begin = (text ?? "").slice(0, 8 * limit);
  return oneLine(decodeEntities(begin.replace(/<\/?[a-zA-Z][^<>]{0,200}>/g, "")));
}

/** Returns a post's text. It has no markup, but X escapes three characters. */
export function postText(text: string): string {
  const plain = text.toWellFormed().replaceAll("\u0000", "").replaceAll("&lt;", "<").replaceAll("&gt;", ">");
  return shortened(plain.replaceAll("&amp;", "&").trim(), MAX_SNIPPET_CHARACTERS);
}

/** Makes a post's title: its author's handle and its beginning (service.md "Message"). */
export function postTitle(handle: string, text: string): string {
  const start = shortened(oneLine(text), MAX_POST_START_CHARACTERS);
  return start === "" ? `@${handle}` : `@${handle}: ${start}`;
}

/** Returns the plain text of a title, shortened; null where nothing is left of it. */
export function titleText(text: string | null | undefined): string | null {
  const plain = withoutMarkup(text, MAX_TITLE_CHARACTERS);
  return plain === "" ? null : shortTitle(plain);
}

/** The title of a result or a page. */
export const shortTitle = (title: string): string => shortened(title, MAX_TITLE_CHARACTERS);

/** Returns a result's URL, or null when no client could open it. */
export function resultUrl(text: string): URL | null {
  if (text.length > MAX_URL_LENGTH || !URL.canParse(text)) return null;
  const url = new URL(text);
  return url.protocol === "http:" || url.protocol === "https:" ? url : null;
}

const oneLine = (text: string) => text.toWellFormed().replaceAll("\u0000", " ").replace(/\s+/g, " ").trim();
