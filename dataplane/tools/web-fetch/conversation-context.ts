/**
 * Collects the URLs that a client's conversation has shown: those of the user's own words and of client tools' results,
 * those of earlier annotations, and those that earlier searches of a Responses conversation found (service.md
 * "Opening pages", "Conversations", rule 3.13). URLs in a model's text or in the system prompt do not count.
 * Those of Messages blocks are added where the blocks are restored. Pure.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import { stringOf } from "../../dialects/fields.ts";
import { textOfFile } from "../../dialects/media.ts";
import type { JsonObject, JsonValue } from "../../dialects/messages/types.ts";
import { isObject } from "../../lib/json-object.ts";
import { PriorContext } from "./prior-context.ts";

/** Deepest nesting of contents; no dialect has deeper ones. */
const MAX_DEPTH = 6;

export function conversationContext(dialect: Dialect, body: JsonObject): PriorContext {
  const prior = new PriorContext();
  const input = dialect === "responses" ? body["input"] : body["messages"];
  if (typeof input === "string") prior.addText(input);
  for (const turn of objectsOf(input)) {
    const role = turn["role"];
    if (role === "user" || role === "tool" || role === "function") addTexts(prior, turn["content"], 0);
    else if (turn["type"] === "function_call_output") addTexts(prior, turn["output"], 0);
    else if (turn["type"] === "web_search_call" || turn["type"] === "x_search_call") addSearch(prior, turn);
    // An answer cites earlier results, also ones that only echo their query (rule 7.11).
    else if (role === "assistant") addAnnotations(prior, turn);
  }
  return prior;
}

/** Adds what an earlier call found or opened; of a failed one only its queries. */
function addSearch(prior: PriorContext, { status, action }: JsonObject): void {
  if (!isObject(action)) return;
  for (const query of [action["query"], ...listOf(action["queries"])])
    if (typeof query === "string") prior.addQuery(query);
  if (status !== "completed") return;
  const { type, sources, url } = action;
  if (type === "open_page" && typeof url === "string") prior.addOpenedUrl(url);
  for (const source of objectsOf(sources))
    if (typeof source["url"] === "string") prior.addFound(source["url"], "");
}

/** Adds every text of a turn's content, also of text documents and files, tool results, and the client's own searches. */
function addTexts(prior: PriorContext, content: JsonValue | undefined, depth: number): void {
  if (depth > MAX_DEPTH) return;
  if (typeof content === "string") prior.addText(content);
  for (const part of objectsOf(content)) {
    const { text, type, source } = part;
    if (typeof text === "string") prior.addText(text);
    if (type === "search_result" && typeof source === "string") prior.addText(source);
    if (type === "tool_result" || type === "search_result") addTexts(prior, part["content"], depth + 1);
    if (type === "document" && isObject(source)) {
      if (source["type"] === "text") addTexts(prior, source["data"], depth + 1);
      else if (source["type"] === "content") addTexts(prior, source["content"], depth + 1);
    }
    // In Chat the file is an object inside of its part.
    if (type === "file" && isObject(part["file"])) addFile(prior, part["file"]);
    else if (type === "input_file") addFile(prior, part);
  }
}

function addFile(prior: PriorContext, { file_data: data, filename }: JsonObject): void {
  const text = typeof data === "string" ? textOfFile(data, stringOf(filename) ?? undefined) : null;
  if (text !== null) prior.addText(text);
}

/** Adds cited URLs. Chat has annotations beside the text, Responses within its parts. */
function addAnnotations(prior: PriorContext, turn: JsonObject): void {
  const annotations = [turn, ...objectsOf(turn["content"])].flatMap((holder) =>
    objectsOf(holder["annotations"]),
  );
  for (const annotation of annotations) {
    const nested = annotation["url_citation"];
    const url = isObject(nested) ? nested["url"] : annotation["url"];
    if (typeof url === "string") prior.addFound(url, "");
  }
}

const listOf = (list: JsonValue | undefined): JsonValue[] => (Array.isArray(list) ? list : []);
const objectsOf = (list: JsonValue | undefined): JsonObject[] =>
  listOf(list).flatMap((item) => (isObject(item) ? [item] : []));
