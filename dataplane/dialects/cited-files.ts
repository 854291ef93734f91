/**
 * Files that earlier answers cite: history, and files of the account that answered. A client can only repeat their ids,
 * which are not looked up and go to no upstream (rule 2.10).
 */
import { isObject } from "../lib/json-object.ts";
import { arrayOf } from "./fields.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** Annotations of Chat and Responses answers that cite files; they are left out. */
export const fileAnnotations: ReadonlySet<string | undefined> = new Set([
  "file_citation",
  "container_file_citation",
  "file_path",
]);

/** Citations of Messages answers that name the file of a document beside its place in the request: the id becomes null. */
export const documentCitations: ReadonlySet<JsonValue | undefined> = new Set([
  "char_location",
  "page_location",
  "content_block_location",
]);

const citesFile = (citation: JsonValue): citation is JsonObject =>
  isObject(citation) && documentCitations.has(citation["type"]) && typeof citation["file_id"] === "string";

/** Removes the ids of files from a text block's citations. @returns `block` itself when it has none. */
export function withoutCitedFiles(block: JsonObject): JsonObject {
  const citations = arrayOf(block["citations"]);
  if (citations === null || !citations.some(citesFile)) return block;
  return {
    ...block,
    citations: citations.map((one) => (citesFile(one) ? { ...one, file_id: null } : one)),
  };
}
