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
import type { CitedSources } from "../links.ts";
import { PriorContext } from "./prior-context.ts";

/** Deepest nesting of contents; no dialect has deeper ones. */
const MAX_DEPTH = 6;

/**
 * @param sources gets what was found, opened and cited in a Responses or Chat conversation: later text may cite it again, as
 *   in Messages, where it is in the blocks.
 */
export function conversationContext(
  dialect: Dialect,
  body: JsonObject,
  sources?: Pick<CitedSources, "add">,
): PriorContext {
  const prior = new PriorContext();
  const told = dialect === "messages" ? undefined : sources;
  const input = dialect === "responses" ? body["input"] : body["messages"];
  if (typeof input === "string") prior.addText(input);
  for (const turn of objectsOf(input)) {
    const role = turn["role"];
    if (role === "user" || role === "tool" || role === "function") addTexts(prior, turn["content"], 0);
    else if (turn["type"] === "function_call_output") addTexts(prior, turn["output"], 0);
    else if (turn["type"] === "web_search_call" || turn["type"] === "x_search_call")
      addSearch(prior, turn, told);
    // An answer cites earlier results, also ones that only echo their query (rule 7.11).
    else if (role === "assistant") addAnnotations(prior, turn, told);
  }
  return prior;
}

/** Adds what an earlier call found or opened; of a failed one only its queries. */
function addSearch(
  prior: PriorContext,
  { status, action }: JsonObject,
  told: Pick<CitedSources, "add"> | undefined,
): void {
  if (!isObject(action)) return;
  for (const query of [action["query"], ...listOf(action["queries"])])
    if (typeof query === "string") prior.addQuery(query);
  if (status !== "completed") return;
  const { type, sources, url } = action;
  if (type === "open_page" && typeof url === "string") {
    prior.addOpenedUrl(url);
    told?.add({ url, title: null, text: "" });
  }
  for (const { url: found } of objectsOf(sources)) {
    if (typeof found !== "string") continue;
    prior.addFound(found, "");
    told?.add({ url: found, title: null, text: "" });
  }
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
function addAnnotations(
  prior: PriorContext,
  turn: JsonObject,
  told: Pick<CitedSources, "add"> | undefined,
): void {
  const annotations = [turn, ...objectsOf(turn["content"])].flatMap((holder) =>
    objectsOf(holder["annotations"]),
  );
  for (const annotation of annotations) {
    const nested = annotation["url_citation"];
    const { url, title } = isObject(nested) ? nested : annotation;
    if (typeof url !== "string") continue;
    prior.addFound(url, "");
    told?.add({ url, title: stringOf(title), text: "" });
  }
}

const listOf = (list: JsonValue | undefined): JsonValue[] => (Array.isArray(list) ? list : []);
const objectsOf = (list: JsonValue | undefined): JsonObject[] =>
  listOf(list).flatMap((item) => (isObject(item) ? [item] : []));
