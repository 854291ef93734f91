/**
 * Reads the parameters of the server tools that a client declares, in each dialect's own form (service.md
 * "Server tools", rules 3.1–3.3). companions.ts judges what may accompany them; which tools are known and usable at all
 * was judged before (inference/request/refuse.ts). Every refusal names its field. Pure.
 */
import type { Dialect } from "../dialects/dialect.ts";
import { isServerToolName, serverToolOf } from "../dialects/find-server-tool.ts";
import type { JsonObject, JsonValue } from "../dialects/messages/types.ts";
import { serverTools, type ServerToolName } from "../dialects/server-tools.ts";
import type { PathStep } from "../lib/field-path.ts";
import { isObject } from "../lib/json-object.ts";
import { judgeCompanions, refuseItems, refuseParts, type DeclaredTools } from "./companions.ts";
import {
  DeclarationReader,
  entriesOf,
  type UserLocation,
  type XSearchDeclaration,
} from "./declaration-reader.ts";
import { anyDomain, type DomainLists } from "./domains.ts";
import { MAX_RESULTS } from "./search-query.ts";

export interface SearchDeclaration {
  readonly domains: DomainLists;
  readonly maxUses: number | null;
  readonly location: UserLocation | null;
  /** Results wanted for each search, at most 10. */
  readonly results: number;
}

export interface FetchDeclaration {
  readonly domains: DomainLists;
  readonly maxUses: number | null;
  /** Whether citations into page content are requested. */
  readonly citations: boolean;
  /** Page text is cut to about this many tokens; null: the whole page. */
  readonly maxContentTokens: number | null;
  readonly useCache: boolean;
}

/** What one request may do with server tools. */
export interface RequestedTools {
  readonly webSearch: SearchDeclaration | null;
  readonly webFetch: FetchDeclaration | null;
  readonly xSearch: XSearchDeclaration | null;
  /** Responses only: cap over all tools of the request. */
  readonly maxToolCalls: number | null;
  /** The server tool that `tool_choice` names; it is forced on the first iteration only. */
  readonly forced: ServerToolName | null;
}

/** Opened pages are cut at this many tokens in Responses and Chat (service.md "Limits"). */
const OPENED_PAGE_TOKENS = 25_000;
/** Domains in a list of `filters` of Responses (service.md "Limits"). */
const MAX_FILTERED_DOMAINS = 100;

/**
 * Reads the server tools of a request that declares at least one.
 * @param mayOpen whether pages may be opened on this route: `web_search` of Responses and Chat then opens them too.
 * @throws ApiError for every malformed declaration and for what may not accompany one, naming its field.
 */
export function readDeclarations(dialect: Dialect, body: JsonObject, mayOpen: boolean): RequestedTools {
  switch (dialect) {
    case "messages":
      return readMessages(body);
    case "chat":
      return readChat(body, mayOpen);
    case "responses":
      return readResponses(body, mayOpen);
  }
}

function readMessages(body: JsonObject): RequestedTools {
  const reader = new DeclarationReader("messages");
  const tools: { -readonly [Key in keyof RequestedTools]: RequestedTools[Key] } = {
    webSearch: null,
    webFetch: null,
    xSearch: null,
    maxToolCalls: null,
    forced: null,
  };
  const found = new Set<string>();
  const clientNames = new Map<string, number>();
  for (const [index, entry] of entriesOf(body["tools"])) {
    const steps = ["tools", index];
    const name = serverToolOf("messages", entry["type"]);
    if (name === undefined) {
      if (typeof entry["name"] === "string") clientNames.set(entry["name"], index);
      continue;
    }
    if (entry["name"] !== name) reader.fail("invalid_request_error", [...steps, "name"], `must be "${name}"`);
    if (found.has(name)) reader.fail("invalid_request_error", steps, `the tool ${name} is defined twice`);
    found.add(name);
    const maxUses = reader.count(entry, "max_uses", steps);
    if (name === "x_search") {
      tools.xSearch = reader.xSearch(entry, steps);
      continue;
    }
    const domains = reader.domains(entry, steps);
    if (name === "web_search") {
      tools.webSearch = { maxUses, domains, location: reader.location(entry, steps), results: MAX_RESULTS };
    } else {
      tools.webFetch = { maxUses, domains, ...readFetchOptions(reader, entry, steps) };
    }
  }
  for (const name of found) {
    const clash = clientNames.get(name);
    if (clash !== undefined) {
      reader.fail(
        "invalid_request_error",
        ["tools", clash, "name"],
        `"${name}" is the name of a declared server tool`,
      );
    }
  }
  tools.forced = forcedBy(body["tool_choice"], found);
  return tools;
}

/** Returns which of the declared tools the choice of Messages names; null: none. */
function forcedBy(choice: JsonValue | undefined, declared: ReadonlySet<string>): ServerToolName | null {
  if (!isObject(choice) || choice["type"] !== "tool") return null;
  const { name } = choice;
  return isServerToolName(name) && declared.has(name) ? name : null;
}

function readFetchOptions(reader: DeclarationReader, entry: JsonObject, steps: readonly PathStep[]) {
  const citations = entry["citations"] ?? null;
  const here = [...steps, "citations"];
  return {
    citations: citations !== null && reader.boolean(reader.object(citations, here), "enabled", false, here),
    maxContentTokens: reader.count(entry, "max_content_tokens", steps),
    useCache: reader.boolean(entry, "use_cache", true, steps),
  };
}

/** In Responses and Chat `web_search` opens pages too, under the same domain lists. */
const opening = (search: SearchDeclaration): FetchDeclaration => ({
  maxUses: null,
  domains: search.domains,
  citations: false,
  maxContentTokens: OPENED_PAGE_TOKENS,
  useCache: true,
});

/** Returns the names of a Chat client's functions, also in the older `functions` form, each with its path. */
function chatFunctions(body: JsonObject): (readonly [readonly PathStep[], JsonValue | undefined])[] {
  const nameOf = (definition: JsonValue | undefined) =>
    isObject(definition) ? definition["name"] : undefined;
  return [
    ...entriesOf(body["tools"]).map(
      ([index, { function: called }]) => [["tools", index, "function", "name"], nameOf(called)] as const,
    ),
    ...entriesOf(body["functions"]).map(
      ([index, definition]) => [["functions", index, "name"], nameOf(definition)] as const,
    ),
  ];
}

function readChat(body: JsonObject, mayOpen: boolean): RequestedTools {
  const reader = new DeclarationReader("chat");
  const field = serverTools.web_search.chatField;
  const here = [field];
  const options = reader.object(body[field], here);
  for (const [index, entry] of entriesOf(body["tools"])) {
    if (entry["type"] === "function") continue;
    reader.fail("unsupported_tool", ["tools", index, "type"], `only function tools may accompany ${field}`);
  }
  const companions = chatFunctions(body);
  for (const [steps, name] of companions) {
    if (name !== "web_search") continue;
    reader.fail("invalid_request_error", steps, '"web_search" is the name of a server tool');
  }
  const ownFetch = companions.some(([, name]) => name === "web_fetch");
  const n = body["n"];
  if (typeof n === "number" && n > 1) {
    reader.fail("unsupported_parameter", ["n"], "must be 1 when a server tool is used");
  }
  refuseParts(reader, body["messages"], ["messages"], new Set(["file", "input_audio"]));
  const webSearch: SearchDeclaration = {
    maxUses: null,
    domains: anyDomain,
    location: reader.location(options, here),
    results: reader.contextSize(options, here),
  };
  const isOffered = !demandsListed(body["tool_choice"]);
  return {
    webSearch: isOffered ? webSearch : null,
    webFetch: isOffered && mayOpen && !ownFetch ? opening(webSearch) : null,
    xSearch: null,
    maxToolCalls: null,
    // `required` with nothing but server tools means the search tool (service.md "Declarations in Chat").
    forced: body["tool_choice"] === "required" && companions.length === 0 ? "web_search" : null,
  };
}

/** Whether a Chat client demands a call of the functions that it lists: a search, which no list can name, would be none. */
function demandsListed(choice: JsonValue | undefined): boolean {
  const allowed =
    isObject(choice) && choice["type"] === "allowed_tools" ? choice["allowed_tools"] : undefined;
  return isObject(allowed) && allowed["mode"] === "required";
}

function readResponses(body: JsonObject, mayOpen: boolean): RequestedTools {
  const reader = new DeclarationReader("responses");
  let webSearch: SearchDeclaration | null = null;
  let xSearch: XSearchDeclaration | null = null;
  const declared = responsesTools(body);
  for (const [steps, entry] of declared) {
    const name = serverToolOf("responses", entry["type"]);
    if (name === "x_search") {
      if (xSearch !== null) reader.fail("invalid_request_error", steps, "the tool x_search is defined twice");
      xSearch = reader.xSearch(entry, steps);
    } else if (
      name === "web_search" &&
      // A search tool without web access counts as not declared: it reads only an index, which we do not have (dialects.md §H3).
      entry["external_web_access"] !== false
    ) {
      if (webSearch !== null)
        reader.fail("invalid_request_error", steps, "the tool web_search is defined twice");
      const filterSteps = [...steps, "filters"];
      const filters = reader.object(entry["filters"] ?? {}, filterSteps);
      webSearch = {
        maxUses: null,
        domains: reader.domains(filters, filterSteps, MAX_FILTERED_DOMAINS),
        location: reader.location(entry, steps),
        results: reader.contextSize(entry, steps),
      };
    }
  }
  const found = new Set<ServerToolName>();
  if (webSearch !== null) found.add("web_search");
  if (xSearch !== null) found.add("x_search");
  const ownFetch = judgeCompanions(reader, declared, found);
  refuseItems(reader, body["input"]);
  const choice = isObject(body["tool_choice"]) ? body["tool_choice"] : {};
  const chosen = serverToolOf("responses", choice["type"]);
  // Tools that `allowed_tools` leaves out are not offered (dialects.md §D1): even an unwanted search costs.
  if (choice["type"] === "allowed_tools") {
    const allowed = entriesOf(choice["tools"]).map(([, { type }]) => serverToolOf("responses", type));
    if (!allowed.includes("web_search")) webSearch = null;
    if (!allowed.includes("x_search")) xSearch = null;
  }
  return {
    webSearch,
    webFetch: mayOpen && webSearch !== null && !ownFetch ? opening(webSearch) : null,
    xSearch,
    maxToolCalls: reader.count(body, "max_tool_calls", []),
    forced: chosen !== undefined && found.has(chosen) ? chosen : null,
  };
}

/** Returns `tools` and those that Codex adds by `additional_tools` items (dialects.md §H3), each with its path. */
function responsesTools(body: JsonObject): DeclaredTools {
  const added = entriesOf(body["input"]).flatMap(([item, { type, tools }]) =>
    type === "additional_tools"
      ? entriesOf(tools).map(([index, entry]) => [["input", item, "tools", index], entry] as const)
      : [],
  );
  return [...entriesOf(body["tools"]).map(([index, entry]) => [["tools", index], entry] as const), ...added];
}
