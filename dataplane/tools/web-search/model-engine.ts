/**
 * The Model engine: a ModelRoute whose native web search answers the query. One request in the route's own dialect
 * with that dialect's search declared; the hits are the search results and citations of its answer. Pure.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import { stringOf } from "../../dialects/fields.ts";
import { serverTools } from "../../dialects/server-tools.ts";
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

/** The request without its `model`, which the route fills in. */
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
            // The oldest: the one that every upstream with a search of its own knows.
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
const records = (value: unknown): Json[] =>
  Array.isArray(value) ? value.filter((item): item is Json => typeof item === "object" && item !== null) : [];
const record = (value: unknown): Json => (typeof value === "object" && value !== null ? (value as Json) : {});

/** The hits of a whole answer, results before citations; null when the answer is not one of its dialect. */
export function modelHits(dialect: Dialect, body: unknown): readonly RawHit[] | null {
  const answer = record(body);
  const found = new Map<string, RawHit>();
  const add = (source: Json, text: string | null) => {
    const url = stringOf(source["url"]);
    if (url === null) return;
    const known = found.get(url);
    found.set(url, {
      url,
      title: stringOf(source["title"]) ?? known?.title,
      text: [known?.text, text].filter(Boolean).join(" "),
      age: stringOf(source["page_age"]) ?? known?.age,
    });
  };
  switch (dialect) {
    case "messages": {
      if (!Array.isArray(answer["content"])) return null;
      for (const block of records(answer["content"])) {
        for (const result of records(block["content"])) add(result, null);
        for (const citation of records(block["citations"])) add(citation, stringOf(citation["cited_text"]));
      }
      break;
    }
    case "responses": {
      if (!Array.isArray(answer["output"])) return null;
      for (const item of records(answer["output"])) {
        for (const source of records(record(item["action"])["sources"])) add(source, null);
        for (const part of records(item["content"])) {
          const text = stringOf(part["text"]) ?? "";
          for (const note of records(part["annotations"])) add(note, sentenceAround(text, note));
        }
      }
      break;
    }
    case "chat": {
      const message = record(records(answer["choices"])[0]?.["message"]);
      if (stringOf(message["content"]) === null) return null;
      const text = stringOf(message["content"]) ?? "";
      for (const note of records(message["annotations"])) {
        const cited = record(note["url_citation"]);
        add(cited, sentenceAround(text, cited));
      }
    }
  }
  return [...found.values()];
}

/** The line of the answer that a citation stands in: what the model says about that source. */
function sentenceAround(text: string, note: Json): string | null {
  const at = note["start_index"];
  if (typeof at !== "number" || at < 0 || at > text.length) return null;
  const from = text.lastIndexOf("\n", at - 1) + 1;
  const to = text.indexOf("\n", at);
  return text.slice(from, to < 0 ? text.length : to).trim();
}
