/**
 * Writes a server tool's outcome in two forms: for the model, as the content of a tool result, and for a Messages
 * client, as a result block whose contents are sealed (service.md "Conversations"). Reads the second form back when a
 * conversation is resent. Pure.
 */
import type { Sealer } from "../dialects/codecs.ts";
import type {
  Citation,
  ContentBlockParam,
  DocumentBlock,
  ToolResultBlock,
  ToolUseBlock,
  WebFetchErrorCode,
  WebFetchToolResultBlock,
  WebSearchErrorCode,
  WebSearchToolResultBlock,
} from "../dialects/messages/types.ts";
import { isObject } from "../lib/json-object.ts";
import type { CitedSources } from "../tools/links.ts";
import type { FetchedPage, SearchHit, SearchOutcome } from "../tools/outcomes.ts";
import type { ToolCall } from "./loop.ts";

/** Outcome of a server tool's call. */
export type ToolOutcome =
  | Extract<SearchOutcome, { kind: "hits" }>
  | { readonly kind: "page"; readonly page: FetchedPage }
  | { readonly kind: "error"; readonly code: WebFetchErrorCode };

/** One sentence of advice for the model with each error code (rule 3.10). */
const advice: Record<WebFetchErrorCode, string> = {
  too_many_requests: "Too many tool calls were made in the last minute; answer with what you have.",
  invalid_tool_input: "The input was not valid; call the tool again with the documented parameters.",
  max_uses_exceeded: "No further calls of this tool are allowed in this request; answer with what you have.",
  query_too_long: "The query is too long; use a shorter one, of at most 400 characters.",
  unavailable: "The tool is not available at the moment; answer without it.",
  url_too_long: "The URL is longer than 250 characters; use another page.",
  url_not_allowed: "This domain may not be opened; use another page.",
  url_not_in_prior_context: "Only URLs that the user or an earlier result gave may be opened.",
  url_not_accessible: "The page could not be opened; use another page.",
  unsupported_content_type: "This kind of content cannot be read; use another page.",
};

const SEARCH_CODES: ReadonlySet<string> = new Set<WebSearchErrorCode>([
  "too_many_requests",
  "invalid_tool_input",
  "max_uses_exceeded",
  "query_too_long",
  "unavailable",
]);
/** Whether a code is one of those that models and Messages clients get. */
export const isToolErrorCode = (code: string): code is WebFetchErrorCode => Object.hasOwn(advice, code);

/** `cited_text` is at most this many characters (service.md "Limits"). */
const MAX_CITED = 150;

/** Makes the `tool_result` that the model reads. Search results carry citations; a page's are on when `citePages`. */
export function resultForModel(callId: string, outcome: ToolOutcome, citePages: boolean): ToolResultBlock {
  switch (outcome.kind) {
    case "error":
      return {
        type: "tool_result",
        tool_use_id: callId,
        content: `${outcome.code}: ${advice[outcome.code]}`,
        is_error: true,
      };
    case "hits":
      return {
        type: "tool_result",
        tool_use_id: callId,
        content: outcome.hits.length === 0 ? "The search found nothing." : outcome.hits.map(hitForModel),
      };
    case "page":
      return {
        type: "tool_result",
        tool_use_id: callId,
        content: withoutWords(outcome.page) ?? [pageDocument(outcome.page, citePages)],
      };
  }
}

/** What the model reads of a page without words, such as one that only a browser fills; null: it has some. */
function withoutWords({ title, source }: FetchedPage): string | null {
  if (source.type !== "text" || source.text.trim() !== "") return null;
  return title === null ? "The page has no text." : `The page has no text, only the title "${title}".`;
}

/** What the model reads of a call of a tool that nobody has. The client does not see such a call. */
export const noSuchTool = ({ id, name }: Pick<ToolUseBlock, "id" | "name">): ToolResultBlock => ({
  type: "tool_result",
  tool_use_id: id,
  content: `invalid_tool_input: There is no tool ${name}; use one of those that are there, or answer with what you have.`,
  is_error: true,
});

const hitForModel = (hit: SearchHit): ContentBlockParam => ({
  type: "search_result",
  source: hit.url,
  title: hit.title ?? hit.url,
  content: [{ type: "text", text: modelText(hit) }],
  citations: { enabled: true },
});

/** Messages upstreams refuse an empty text block. */
const modelText = (hit: SearchHit) => {
  const text = hit.text === "" ? (hit.title ?? hit.url) : hit.text;
  return hit.age === null ? text : `${text}\n(${hit.age})`;
};

function pageDocument(page: FetchedPage, citations: boolean): DocumentBlock {
  const source =
    page.source.type === "text"
      ? ({
          type: "text",
          media_type: "text/plain",
          data: page.source.text === "" ? " " : page.source.text,
        } as const)
      : ({ type: "base64", media_type: "application/pdf", data: page.source.base64 } as const);
  return { type: "document", source, title: page.title ?? page.url, citations: { enabled: citations } };
}

/** Makes the conversation's result block. `sealer` is null where no client will see it (Chat, Responses). */
export function resultForClient(
  call: ToolCall,
  outcome: ToolOutcome,
  citePages: boolean,
  sealer: Sealer | null,
): WebSearchToolResultBlock | WebFetchToolResultBlock {
  const caller = { type: "direct" } as const;
  if (call.name === "web_fetch") {
    const content: WebFetchToolResultBlock["content"] =
      outcome.kind === "page"
        ? {
            type: "web_fetch_result",
            url: outcome.page.url,
            retrieved_at: outcome.page.retrievedAt,
            content: pageDocument(outcome.page, citePages),
          }
        : {
            type: "web_fetch_tool_result_error",
            error_code: outcome.kind === "error" ? outcome.code : "unavailable",
          };
    return { type: "web_fetch_tool_result", tool_use_id: call.id, content, caller };
  }
  const content: WebSearchToolResultBlock["content"] =
    outcome.kind === "hits"
      ? outcome.hits.map((hit) => ({
          type: "web_search_result",
          url: hit.url,
          title: hit.title ?? hit.url,
          encrypted_content: sealer === null ? "" : sealer.seal(JSON.stringify(sealedHit(hit))),
          page_age: hit.age,
        }))
      : {
          type: "web_search_tool_result_error",
          error_code: outcome.kind === "error" && isSearchCode(outcome.code) ? outcome.code : "unavailable",
        };
  return { type: "web_search_tool_result", tool_use_id: call.id, content, caller };
}

const isSearchCode = (code: string): code is WebSearchErrorCode => SEARCH_CODES.has(code);

/** `k` tells a result from a citation, so that one cannot stand in for the other. */
const sealedHit = (hit: SearchHit) => ({ k: "hit", u: hit.url, t: hit.title, c: hit.text, a: hit.age });

/** Opens an `encrypted_content`; null when it is damaged, foreign or something else. */
export function openHit(sealed: string, sealer: Sealer): SearchHit | null {
  const value = opened(sealed, sealer, "hit");
  if (value === null || typeof value["u"] !== "string" || typeof value["c"] !== "string") return null;
  const title = value["t"];
  const age = value["a"];
  return {
    url: value["u"],
    title: typeof title === "string" ? title : null,
    text: value["c"],
    age: typeof age === "string" ? age : null,
  };
}

/** Whether this is an `encrypted_index` that we gave to this organization. */
export const isOwnIndex = (sealed: string, sealer: Sealer): boolean =>
  opened(sealed, sealer, "cite") !== null;

function opened(sealed: string, sealer: Sealer, kind: string): Record<string, unknown> | null {
  const plain = sealer.open(sealed);
  if (plain === null) return null;
  try {
    const value: unknown = JSON.parse(plain);
    if (value === null || typeof value !== "object" || !("k" in value) || value.k !== kind) return null;
    return { ...value };
  } catch {
    return null;
  }
}

/** Makes a citation of a search result in a Messages client's form. */
export function searchCitation(url: string, title: string | null, cited: string, sealer: Sealer): Citation {
  return {
    type: "web_search_result_location",
    url,
    title,
    encrypted_index: sealer.seal(JSON.stringify({ k: "cite", u: url })),
    cited_text: shortCited(cited),
  };
}

const shortCited = (cited: string): string =>
  Array.from(cited.slice(0, 2 * MAX_CITED))
    .slice(0, MAX_CITED)
    .join("");

/** Citations into a document; their official types always have the `file_id` of its file. */
const documentCitations: ReadonlySet<string> = new Set<Citation["type"]>([
  "char_location",
  "page_location",
  "content_block_location",
]);

/** Sources that a model may cite. */
export interface Citable {
  /** Pages and hits of tools. */
  readonly sources: CitedSources;
  /** Whether documents may be cited. */
  readonly documents: boolean;
}

/**
 * Writes a model's own citation for a Messages client; null: it cites nothing that it may. An upstream may have left
 * out its text, its title or its file.
 */
export function citationForClient(
  citation: Citation,
  { sources, documents }: Citable,
  sealer: Sealer,
): Citation | null {
  if (!isObject(citation) || typeof citation.type !== "string") return null;
  if (documentCitations.has(citation.type))
    return documents
      ? { ...shortCitation(citation), ...("file_id" in citation ? {} : { file_id: null }) }
      : null;
  const url = addressOf(citation);
  const source = url === null ? undefined : sources.find(url);
  // Citations of the client's own search results stay as they are; an index of another service could not be resent.
  if (url === null || source === undefined)
    return citation.type === "web_search_result_location" ? null : shortCitation(citation);
  const { title, cited_text: text } = citation as { title?: unknown; cited_text?: unknown };
  const shown = typeof title === "string" ? title : source.title;
  return searchCitation(url, shown, typeof text === "string" ? text : source.text, sealer);
}

function addressOf(citation: Citation): string | null {
  const address =
    citation.type === "search_result_location"
      ? citation.source
      : citation.type === "web_search_result_location" && citation.url;
  return typeof address === "string" ? address : null;
}

const shortCitation = (citation: Citation): Citation => ({
  ...citation,
  ...(typeof citation.cited_text === "string" && { cited_text: shortCited(citation.cited_text) }),
});
