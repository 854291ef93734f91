/**
 * The Model engine: a ModelRoute whose native web search answers the query. One request in the route's own dialect
 * with that dialect's search declared; the hits are the search results and citations of its answer. Pure.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import { stringOf } from "../../dialects/fields.ts";
import { serverTools } from "../../dialects/server-tools.ts";
import { isObject } from "../../lib/json-object.ts";
import type { RawHit, SearchOptions } from "./engines.ts";

/**
 * Sends one request to a model route and returns the whole answer's JSON. Its tokens are not billed to the client.
 * @throws when no upstream answers.
 */
export type AskModel = (
  model: string,
  build: (dialect: Dialect) => Readonly<Record<string, unknown>>,
  signal: AbortSignal,
) => Promise<{ readonly dialect: Dialect; readonly body: unknown }>;

const MAX_ANSWER_TOKENS = 2_048;

/** Makes the request without its `model`, which the route fills in. */
export function modelRequest(
  dialect: Dialect,
  query: string,
  options: SearchOptions,
): Record<string, unknown> {
  const prompt = `Search the web for the following and list at most ${options.results} relevant results, each with its link and one sentence of what it says.\n\n${query}`;
  const { location } = options;
  const place = location === null ? null : { ...location };
  const allowed = options.domains.allowed?.map(domainText) ?? [];
  const blocked = options.domains.blocked.map(domainText);
  const userLocation = place === null ? {} : { user_location: { type: "approximate", ...place } };
  switch (dialect) {
    case "messages":
      return {
        max_tokens: MAX_ANSWER_TOKENS,
        messages: [{ role: "user", content: prompt }],
        tools: [
          {
            // The oldest version of the tool, which every upstream with a search of its own knows.
            type: serverTools.web_search.messages[0],
            name: "web_search",
            max_uses: 1,
            ...(allowed.length > 0 ? { allowed_domains: allowed } : {}),
            ...(blocked.length > 0 ? { blocked_domains: blocked } : {}),
            ...userLocation,
          },
        ],
      };
    case "responses":
      return {
        max_output_tokens: MAX_ANSWER_TOKENS,
        store: false,
        input: prompt,
        include: ["web_search_call.action.sources"],
        tools: [
          {
            type: "web_search",
            ...(allowed.length > 0 ? { filters: { allowed_domains: allowed } } : {}),
            ...userLocation,
          },
        ],
        tool_choice: "required",
      };
    case "chat":
      return {
        max_completion_tokens: MAX_ANSWER_TOKENS,
        messages: [{ role: "user", content: prompt }],
        web_search_options:
          place === null ? {} : { user_location: { type: "approximate", approximate: place } },
      };
  }
}

const domainText = ({ domain, path }: { readonly domain: string; readonly path: readonly string[] }) =>
  domain + path.join("*");

type Json = Readonly<Record<string, unknown>>;
const records = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : []);
const record = (value: unknown): Json => (isObject(value) ? value : {});

/** A source that an answer names, and the answer's text about it. */
type Named = readonly [source: Json, text: string | null];

/** Reads the hits of a whole answer, results before citations; null when it is no answer of its dialect, or its search failed. */
export function modelHits(dialect: Dialect, body: unknown): readonly RawHit[] | null {
  const named = readers[dialect](record(body));
  if (named === null) return null;
  const found = new Map<string, RawHit>();
  for (const [source, text] of named) {
    const url = stringOf(source["url"]);
    if (url === null) continue;
    const known = found.get(url);
    found.set(url, {
      url,
      title: stringOf(source["title"]) ?? known?.title,
      text: [known?.text, text].filter(Boolean).join(" "),
      age: stringOf(source["page_age"]) ?? known?.age,
    });
  }
  return [...found.values()];
}

const readers: Readonly<Record<Dialect, (answer: Json) => readonly Named[] | null>> = {
  messages: namedInMessage,
  responses: namedInResponse,
  chat: namedInChat,
};

function namedInMessage({ content }: Json): readonly Named[] | null {
  if (!Array.isArray(content)) return null;
  const blocks = records(content);
  const results = blocks.filter(({ type }) => type === serverTools.web_search.resultBlock);
  // A failed search's block holds an error in place of its list.
  if (allOf(results, (result) => isObject(result["content"]))) return null;
  return blocks.flatMap((block) => [
    ...records(block["content"]).map((result): Named => [result, null]),
    ...records(block["citations"]).map((note): Named => [note, stringOf(note["cited_text"])]),
  ]);
}

function namedInResponse({ status, output }: Json): readonly Named[] | null {
  if (!Array.isArray(output) || status === "failed") return null;
  const items = records(output);
  const searches = items.filter(({ type }) => type === serverTools.web_search.item);
  if (allOf(searches, (search) => search["status"] === "failed")) return null;
  return items.flatMap((item) => [
    ...records(record(item["action"])["sources"]).map((source): Named => [source, null]),
    ...records(item["content"]).flatMap((part) => {
      const text = stringOf(part["text"]) ?? "";
      return records(part["annotations"]).map((note): Named => [note, lineAround(text, note)]);
    }),
  ]);
}

function namedInChat({ choices }: Json): readonly Named[] | null {
  const message = record(records(choices)[0]?.["message"]);
  const text = stringOf(message["content"]);
  if (text === null) return null;
  return records(message["annotations"]).map((note): Named => {
    const cited = record(note["url_citation"]);
    return [cited, lineAround(text, cited)];
  });
}

/** Whether the list has entries and `holds` is true for each. */
const allOf = (list: readonly Json[], holds: (entry: Json) => boolean) =>
  list.length > 0 && list.every(holds);

/** Returns the line of the answer that contains a citation: what the model says about that source. */
function lineAround(text: string, note: Json): string | null {
  const at = note["start_index"];
  if (typeof at !== "number" || at < 0 || at > text.length) return null;
  const from = text.lastIndexOf("\n", at - 1) + 1;
  const to = text.indexOf("\n", at);
  return text.slice(from, to < 0 ? text.length : to).trim();
}
