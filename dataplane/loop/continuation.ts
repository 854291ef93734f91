/**
 * Reads a Messages conversation that holds server-tool blocks of earlier answers and writes it as the model
 * knows it: tool calls and tool results (service.md "Conversations", rules 3.4, 3.6). Pure.
 *
 * One assistant message of a client may hold several iterations:
 *
 *   [thinking, text, server_tool_use A, server_tool_use B, result A, result B, text, tool_use C]
 *
 * becomes  assistant [thinking, text, A, B] · user [result A, result B] · assistant [text, C]. A client's
 * tool_use that follows results directly was called in the same turn as they were, so it joins that turn.
 */
import { behindBlankLine } from "../dialects/blank-line.ts";
import type { Sealer } from "../dialects/codecs.ts";
import { isServerToolName, serverToolBlocks } from "../dialects/find-server-tool.ts";
import { MAX_CALLS } from "../dialects/tool-input.ts";
import type { JsonObject, JsonValue } from "../dialects/messages/types.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import { ApiError } from "../lib/api-error.ts";
import { fieldPath, type PathStep } from "../lib/field-path.ts";
import { isObject } from "../lib/json-object.ts";
import { resultsBehind } from "./add-results.ts";
import type { ToolCall } from "./loop.ts";
import { placeBlocks } from "./place-blocks.ts";
import type { SearchHit } from "../tools/outcomes.ts";
import { isOwnIndex, isToolErrorCode, openHit, resultForModel, type ToolOutcome } from "./results.ts";

export interface Restored {
  /** Messages without any server-tool block; the very same array when there was none. */
  readonly messages: JsonValue | undefined;
  /** The same without the results that stand for server-tool blocks: what is the client's own (rule 2.2). */
  readonly own: JsonValue | undefined;
  /** Calls of the last assistant turn that were never run; they are run before the model is asked again. */
  readonly pending: readonly ToolCall[];
  /** Searches of the conversation: later text may cite their results and web_fetch may open them. */
  readonly searches: readonly RestoredSearch[];
  /** Opened pages of the conversation; they, and what they link to, may be opened. */
  readonly pages: readonly Pick<SearchHit, "url" | "text">[];
}

/** An earlier search: what the model asked for, and what it got. */
export interface RestoredSearch {
  readonly query: string;
  readonly hits: readonly SearchHit[];
}

/** Result of an older turn's call that was never run. */
const neverRun: ToolOutcome = { kind: "error", code: "unavailable" };

/** What is restored of a conversation without server-tool blocks. */
export const nothingFound = { pending: [], searches: [], pages: [] } as const satisfies Omit<
  Restored,
  "messages" | "own"
>;

/** True when any message holds a block that only a server tool makes; a cheap look before anything is built. */
const hasServerToolBlocks = (messages: readonly JsonValue[]): boolean =>
  messages.some((message) => {
    const content = isObject(message) ? message["content"] : undefined;
    return Array.isArray(content) && content.some((block) => isObject(block) && isServerToolBlock(block));
  });

const isServerToolBlock = (block: JsonObject) =>
  (typeof block["type"] === "string" && serverToolBlocks.has(block["type"])) ||
  (Array.isArray(block["citations"]) && block["citations"].some(isOwnCitation));

/** Whether only we can have made a citation: its index has to be there and ours. A document's citation has none. */
const isOwnCitation = (citation: JsonValue): boolean =>
  isObject(citation) &&
  (citation["type"] === "web_search_result_location" || (citation["encrypted_index"] ?? null) !== null);

/**
 * @param declared the server tools of this request; blocks of any other tool become text.
 * @param citePages this request cites pages: those of earlier answers too, as upstreams take all or none.
 * @throws ApiError invalid_request_error naming a block whose sealed content is changed, damaged or foreign.
 */
export function restoreConversation(
  messages: JsonValue | undefined,
  declared: ReadonlySet<ServerToolName>,
  citePages: boolean,
  sealer: Sealer,
): Restored {
  if (!Array.isArray(messages) || !hasServerToolBlocks(messages))
    return { messages, own: messages, ...nothingFound };
  const searches: RestoredSearch[] = [];
  const restored = new Set<string>();
  const pages: Pick<SearchHit, "url" | "text">[] = [];
  const out = new Turns();
  let pending: readonly ToolCall[] = [];
  let lastAssistant = -1;
  for (const [index, message] of messages.entries())
    if (isObject(message) && message["role"] === "assistant") lastAssistant = index;

  const placed = placeBlocks(messages);
  for (const [index, message] of messages.entries()) {
    const blocks = placed.get(index);
    if (blocks === undefined) {
      refuseServerToolBlocks(isObject(message) ? message["content"] : undefined, index);
      out.add(message);
      continue;
    }
    const splitter = new MessageSplitter({
      at: ["messages", index, "content"],
      declared,
      citePages,
      sealer,
      searches,
      pages,
      restored,
    });
    for (const { block, here } of blocks) splitter.add(block, here);
    // Only calls of the newest answer may still be run, however many turns the client adds; it gave up those of older ones.
    const mayRun = index === lastAssistant;
    pending = splitter.finish(mayRun);
    for (const turn of splitter.turns) out.add(turn);
  }
  return { messages: out.turns, own: withoutResults(out.turns, restored), pending, searches, pages };
}

/** Leaves out the results of these calls, but for what the client may have set. */
const withoutResults = (messages: readonly JsonValue[], calls: ReadonlySet<string>): JsonValue[] =>
  messages.map((turn) => {
    if (!isObject(turn) || turn["role"] !== "user" || !Array.isArray(turn["content"])) return turn;
    const content = turn["content"].flatMap((block) => {
      if (!isObject(block) || typeof block["tool_use_id"] !== "string" || !calls.has(block["tool_use_id"]))
        return [block];
      const { type, tool_use_id } = block;
      const set = breakpointOf(block);
      return "cache_control" in set ? [{ type, tool_use_id, ...set } as JsonObject] : [];
    });
    return { ...turn, content };
  });

/** Where a client ends a prefix to be cached: in whatever form a block goes to the model, it ends there. */
export function breakpointOf(block: { readonly cache_control?: unknown } = {}): JsonObject {
  const cache_control = (block.cache_control ?? null) as JsonValue;
  return cache_control === null ? {} : { cache_control };
}

/** Refuses server-tool blocks in other turns: only we write them, in assistant turns, and no others may go upstream. */
function refuseServerToolBlocks(content: JsonValue | undefined, message: number): void {
  if (!Array.isArray(content)) return;
  const at = content.findIndex((block) => isObject(block) && isServerToolBlock(block));
  if (at !== -1)
    refuse(["messages", message, "content", at], "server-tool blocks stand in assistant messages only");
}

/** Joins a user turn to one with results before it: restored results stand before the client's own content. */
class Turns {
  readonly turns: JsonValue[] = [];
  /** Content of the last turn, if it was joined here. */
  #joined: JsonValue[] | null = null;

  add(turn: JsonValue): void {
    const content = this.#behind(turn);
    if (content === null) {
      this.turns.push(turn);
      this.#joined = null;
      return;
    }
    this.#joined ??= [...contentOf(this.turns.at(-1))];
    for (const block of content) this.#joined.push(block);
    this.turns[this.turns.length - 1] = { ...(turn as JsonObject), content: this.#joined };
  }

  /** Returns the content to join to the last turn; null: the turn stands by itself. */
  #behind(turn: JsonValue): JsonValue[] | null {
    const last = this.turns.at(-1);
    if (!isObject(turn) || turn["role"] !== "user" || !isObject(last) || last["role"] !== "user") return null;
    if (this.#joined === null && !holdsResults(last)) return null;
    const { content } = turn;
    if (typeof content === "string") return [{ type: "text", text: content }];
    return Array.isArray(content) ? content : null;
  }
}

const contentOf = (turn: JsonValue | undefined): JsonValue[] =>
  isObject(turn) && Array.isArray(turn["content"]) ? turn["content"] : [];

const holdsResults = (turn: JsonObject) =>
  contentOf(turn).some((block) => isObject(block) && block["type"] === "tool_result");

interface MessageSplitterOptions {
  /** Path of the message's content. */
  readonly at: readonly PathStep[];
  readonly declared: ReadonlySet<ServerToolName>;
  readonly citePages: boolean;
  readonly sealer: Sealer;
  /** Searches and pages of the whole conversation. */
  readonly searches: RestoredSearch[];
  readonly pages: Pick<SearchHit, "url" | "text">[];
  /** Ids of the calls whose results are restored, in the whole conversation. */
  readonly restored: Set<string>;
}

/** Splits one assistant message into the turns that the model knows. */
class MessageSplitter {
  readonly #out: JsonObject[] = [];
  /** Place in `#out` of the turn that made a call, by the call's id. */
  readonly #turnOf = new Map<string, number>();
  /** Results that the client has behind a later turn, by the place of their call's turn. */
  readonly #late = new Map<number, JsonObject[]>();
  readonly #options: MessageSplitterOptions;
  #assistant: JsonValue[] = [];
  #results: JsonObject[] = [];
  /** Calls without a result yet, in order. */
  readonly #open = new Map<string, ToolCall>();
  /** Breakpoints of calls of undeclared tools, which are told together with their results. */
  readonly #told = new Map<string, JsonObject>();
  /** The last text of the turn. */
  #lastText: string | undefined;
  /** The last text stands in for server-tool blocks; the model did not write it. */
  #isTold = false;

  constructor(options: MessageSplitterOptions) {
    this.#options = options;
  }

  /** The turns, as soon as the message is finished. */
  get turns(): readonly JsonValue[] {
    return resultsBehind(this.#out, this.#late);
  }

  /** @param here path of the block at the client. */
  add(block: JsonValue, here: readonly PathStep[]): void {
    if (!isObject(block)) {
      this.#assistant.push(block);
      return;
    }
    const type = block["type"];
    if (type === "server_tool_use") return this.#call(block, here);
    if (typeof type === "string" && serverToolBlocks.has(type)) return this.#result(block, here);
    if (this.#results.length > 0 && type !== "tool_use") this.#flush();
    const own = this.#withoutCitations(block, here);
    if (type === "text" && typeof own["text"] === "string") this.#text(own, own["text"], false);
    else this.#assistant.push(own);
  }

  /**
   * Closes the last turn. With `mayRun`, calls without a result are returned to be run, but for those of undeclared
   * tools, which are dropped; without, all are answered as never run.
   */
  finish(mayRun: boolean): readonly ToolCall[] {
    const { declared } = this.#options;
    const owed = [...this.#open.values()];
    const known = owed.filter(({ name }) => declared.has(name));
    if (!mayRun) for (const call of owed) if (!declared.has(call.name)) this.#answer(call, neverRun);
    this.#flush();
    if (mayRun && known.length > MAX_CALLS)
      return refuse(this.#options.at, `has more than ${MAX_CALLS} calls without results`);
    if (mayRun) return known;
    for (const call of known) this.#answer(call, neverRun);
    return [];
  }

  #flush(): void {
    if (this.#assistant.length > 0) this.#out.push({ role: "assistant", content: this.#assistant });
    if (this.#results.length > 0) this.#out.push({ role: "user", content: this.#results });
    this.#assistant = [];
    this.#results = [];
    this.#lastText = undefined;
  }

  #call(block: JsonObject, here: readonly PathStep[]): void {
    const { id, name, input } = block;
    if (typeof id !== "string" || id === "") return refuse([...here, "id"], "must be a string");
    if (!isServerToolName(name)) return refuse([...here, "name"], "is not a server tool");
    const call: ToolCall = { id, name, input: isObject(input) ? input : null };
    if (!this.#options.declared.has(name)) {
      this.#open.set(id, call);
      this.#told.set(id, breakpointOf(block));
      return;
    }
    if (this.#results.length > 0) this.#flush();
    this.#open.set(id, call);
    this.#turnOf.set(id, this.#out.length);
    this.#assistant.push({ type: "tool_use", id, name, input: call.input ?? {}, ...breakpointOf(block) });
  }

  #result(block: JsonObject, here: readonly PathStep[]): void {
    const id = block["tool_use_id"];
    const call = typeof id === "string" ? this.#open.get(id) : undefined;
    if (call === undefined)
      return refuse([...here, "tool_use_id"], "does not belong to a server_tool_use block before it");
    const outcome = this.#outcome(call, block["content"], [...here, "content"]);
    const { searches, pages } = this.#options;
    const query = call.input?.["query"];
    if (outcome.kind === "hits")
      searches.push({ query: typeof query === "string" ? query : "", hits: outcome.hits });
    if (outcome.kind === "page") {
      const { url, source } = outcome.page;
      pages.push({ url, text: source.type === "text" ? source.text : "" });
    }
    this.#answer(call, outcome, breakpointOf(block));
  }

  /**
   * Adds a text. A blank line parts the model's own texts from those that stand in for blocks, as other dialects join
   * all texts of a turn. Empty ones, which a model may have written, upstreams refuse.
   */
  #text(block: JsonObject, text: string, isTold: boolean): void {
    if (text === "") return;
    const whole = isTold || this.#isTold ? behindBlankLine(this.#lastText, text) : text;
    this.#assistant.push({ ...block, text: whole });
    this.#lastText = whole;
    this.#isTold = isTold;
  }

  #resultOf(callId: string, outcome: ToolOutcome) {
    const { restored, citePages } = this.#options;
    restored.add(callId);
    return resultForModel(callId, outcome, citePages);
  }

  #answer(call: ToolCall, outcome: ToolOutcome, breakpoint: JsonObject = {}): void {
    this.#open.delete(call.id);
    const { declared } = this.#options;
    if (!declared.has(call.name)) {
      const text = asText(call, outcome);
      return this.#text({ type: "text", text, ...this.#told.get(call.id), ...breakpoint }, text, true);
    }
    const result = { ...this.#resultOf(call.id, outcome), ...breakpoint } as unknown as JsonObject;
    const turn = this.#turnOf.get(call.id) ?? this.#out.length;
    if (turn === this.#out.length) {
      this.#results.push(result);
      return;
    }
    // The result still belongs right after its turn.
    const late = this.#late.get(turn);
    if (late === undefined) this.#late.set(turn, [result]);
    else late.push(result);
  }

  #outcome(call: ToolCall, content: JsonValue | undefined, here: readonly PathStep[]): ToolOutcome {
    if (Array.isArray(content)) {
      const hits = content.map((entry, index) => {
        const sealed = isObject(entry) ? entry["encrypted_content"] : undefined;
        const hit = typeof sealed === "string" ? openHit(sealed, this.#options.sealer) : null;
        return (
          hit ?? refuse([...here, index, "encrypted_content"], "is damaged or belongs to another account")
        );
      });
      return { kind: "hits", hits, posts: 0, profiles: 0 };
    }
    if (!isObject(content)) return refuse(here, "must be a list of results or an error");
    if (content["type"] === "web_fetch_result") return { kind: "page", page: pageOf(content, here) };
    const code = content["error_code"];
    if (typeof code !== "string") return refuse([...here, "error_code"], "must be a string");
    // Codes of other services reach the model as a plain failure.
    return { kind: "error", code: isToolErrorCode(code) ? code : "unavailable" };
  }

  /** Checks our own citations and removes all: the model finds the sources in its tool results. */
  #withoutCitations(block: JsonObject, here: readonly PathStep[]): JsonObject {
    const citations = block["citations"];
    if (block["type"] !== "text" || !Array.isArray(citations)) return block;
    for (const [index, citation] of citations.entries()) {
      const sealed = isObject(citation) ? citation["encrypted_index"] : undefined;
      const isOurs = typeof sealed === "string" && isOwnIndex(sealed, this.#options.sealer);
      if (isOwnCitation(citation) && !isOurs) {
        refuse([...here, "citations", index, "encrypted_index"], "is damaged or belongs to another account");
      }
    }
    const { citations: _citations, ...rest } = block;
    return rest;
  }
}

function pageOf(content: JsonObject, here: readonly PathStep[]) {
  const { url, retrieved_at: retrievedAt, content: document } = content;
  const source = isObject(document) ? document["source"] : undefined;
  if (typeof url !== "string") return refuse([...here, "url"], "must be a string");
  if (!isObject(document) || !isObject(source) || typeof source["data"] !== "string") {
    return refuse([...here, "content", "source"], "must be a document's source");
  }
  const title = document["title"];
  return {
    url,
    title: typeof title === "string" ? title : null,
    retrievedAt: typeof retrievedAt === "string" ? retrievedAt : "",
    source:
      source["type"] === "base64"
        ? ({ type: "pdf", base64: source["data"] } as const)
        : ({ type: "text", text: source["data"] } as const),
  };
}

/** Writes a call and its result as text, for a model without the tool. */
function asText(call: ToolCall, outcome: ToolOutcome): string {
  const what = `[${call.name} ${JSON.stringify(call.input ?? {})}]`;
  switch (outcome.kind) {
    case "error":
      return `${what}\nfailed: ${outcome.code}`;
    case "hits":
      return [what, ...outcome.hits.map((hit) => `- ${hit.title ?? hit.url} (${hit.url}): ${hit.text}`)].join(
        "\n",
      );
    case "page":
      return `${what}\n${outcome.page.title ?? ""} (${outcome.page.url})\n${outcome.page.source.type === "text" ? outcome.page.source.text : "(a PDF)"}`;
  }
}

function refuse(steps: readonly PathStep[], text: string): never {
  const param = fieldPath("messages", steps);
  throw new ApiError("invalid_request_error", `${param}: ${text}`, { param });
}
