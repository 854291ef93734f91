/**
 * The start of a tool loop: the declarations, the conversation as the model knows it, and the URLs in it that may be
 * cited and opened. Also writes the loop's calls for an upstream. Pure, so that another thread can read a large request.
 */
import type { Upstream } from "../../config/schema.ts";
import type { CodecContext, KeepItem, Sealer } from "../../dialects/codecs.ts";
import { serverToolNames, serverToolOf } from "../../dialects/find-server-tool.ts";
import { allTools, hoistSystemTurns } from "../../dialects/instructions.ts";
import { serverTools, type ServerToolName } from "../../dialects/server-tools.ts";
import type {
  DocumentBlock,
  FunctionTool,
  JsonObject,
  JsonValue,
  MessageParam,
  MessagesRequest,
  ToolChoice,
} from "../../dialects/messages/types.ts";
import { agreeOnCitations, hasCitedDocument } from "../../loop/citation-settings.ts";
import { breakpointOf, nothingFound, restoreConversation } from "../../loop/continuation.ts";
import type { ToolCall } from "../../loop/loop.ts";
import { nextRequest, type NextCall } from "../../loop/next-request.ts";
import { toolFunctions } from "../../loop/tool-functions.ts";
import type { InputSize } from "../../tokens/estimate.ts";
import { readDeclarations, type RequestedTools } from "../../tools/declarations.ts";
import { CitedSources } from "../../tools/links.ts";
import { conversationContext } from "../../tools/web-fetch/conversation-context.ts";
import type { PriorContext } from "../../tools/web-fetch/prior-context.ts";
import {
  Conversion,
  contextOf,
  type ConversionFacts,
  type Reading,
  type Written,
} from "../request/conversion.ts";
import { withoutReasoning } from "../upstream-refusals/rejected-reasoning.ts";

export interface LoopFacts extends ConversionFacts {
  /** Whether pages may be opened on this route. */
  readonly mayOpen: boolean;
}

/** What the loop has to know of the request, as plain data. */
export interface LoopBeginning {
  readonly tools: RequestedTools;
  /** Calls of a resent conversation that were never run. */
  readonly pending: readonly ToolCall[];
  /** Whether the client asks for citations into pages, and the model makes them. */
  readonly citePages: boolean;
  /** Whether the model may cite documents: pages, or documents that the client sent. */
  readonly citeDocuments: boolean;
  /** Whether the client has tools of its own. */
  readonly clientFunctions: boolean;
  readonly maxTokens: number | undefined;
  readonly toolChoice: ToolChoice | undefined;
  readonly size: InputSize;
}

export interface LoopWritten extends Written {
  /** Number of messages of the conversation, including those that are left out. */
  readonly turns: number;
  /** Whether a message that is sent holds reasoning. */
  readonly reasoning: boolean;
  /** Whether a message that is sent is a system turn. */
  readonly systemTurns: boolean;
}

/** How calls are written after upstreams refused something that they can do without. Plain data. */
export interface LoopWishes {
  /** Number of first messages that are sent without reasoning. */
  readonly forgotten: number;
  /** Whether a Responses upstream is asked for the content of its reasoning. */
  readonly encryptedReasoning: boolean;
  /** Whether system turns are moved to the leading instructions. */
  readonly hoisted: boolean;
}

/** The wishes as long as no upstream refused anything. */
export const firstWishes: LoopWishes = { forgotten: 0, encryptedReasoning: true, hoisted: false };

/** A tool loop's request, wherever the work on it is done. */
export interface LoopWork extends Reading {
  readonly beginning: LoopBeginning;
  readonly sources: CitedSources;
  readonly prior: PriorContext;
  /** Writes a call for an upstream. @throws ApiError */
  write(upstream: Upstream, next: NextCall, wishes: LoopWishes): LoopWritten | Promise<LoopWritten>;
}

export const declaredToolNames = (tools: RequestedTools): ServerToolName[] =>
  serverToolNames.filter((name) => tools[serverTools[name].key] !== null);

/** The loop's work in this thread. @throws ApiError for declarations and conversations that cannot be read. */
export class OpenLoop implements LoopWork {
  readonly beginning: LoopBeginning;
  readonly sources = new CitedSources();
  readonly prior: PriorContext;
  readonly #conversion: Conversion;
  readonly #first: MessagesRequest;
  readonly #serverTools: ReadonlySet<ServerToolName>;

  constructor(facts: LoopFacts, sealer: Sealer, body: JsonObject, keepItem?: KeepItem) {
    const { dialect, route } = facts;
    const tools = readDeclarations(dialect, body, facts.mayOpen);
    const names = declaredToolNames(tools);
    this.#serverTools = new Set(names);
    const citePages = tools.webFetch?.citations === true && route.capabilities.documentCitations;
    const { messages, own, pending, searches, pages } =
      dialect === "messages"
        ? restoreConversation(body["messages"], this.#serverTools, citePages, sealer)
        : { messages: undefined, own: undefined, ...nothingFound };
    const context = contextOf(facts, sealer, keepItem, {
      owed: pending.map(({ id }) => id),
      serverTools: this.#serverTools,
    });
    const withTurns = (turns: JsonValue | undefined) =>
      turns === undefined ? body : { ...body, messages: turns };
    const restored = withTurns(messages);
    const ownBody = own === messages ? restored : withTurns(own);
    this.#conversion = new Conversion(facts, context, restored, ownBody, body);
    this.prior = conversationContext(dialect, body, this.sources);
    for (const { url, text } of pages) this.prior.addPage(url, text);
    for (const { query, hits } of searches) {
      this.prior.addQuery(query);
      for (const hit of hits) {
        this.prior.addFound(hit.url, hit.text);
        this.sources.add(hit);
      }
    }
    const { request } = this.#conversion;
    const ownTools = (request.tools ?? []).filter((tool) => !isServerTool(tool));
    const functions = names.map(
      (name) =>
        ({ ...toolFunctions[name], ...breakpointOf(declarationOf(request.tools, name)) }) as FunctionTool,
    );
    this.#first = { ...request, model: route.model, tools: [...ownTools, ...functions] };
    this.beginning = {
      // The summary of a compaction forces no tool, whatever the client chose.
      tools: this.#conversion.carry.compacts ? { ...tools, forced: null } : tools,
      pending,
      citePages,
      citeDocuments: citePages || hasCitedDocument(this.#first.messages),
      // Those of system turns are the client's, too.
      clientFunctions: ownTools.length > 0 || !allTools(request).every(isServerTool),
      maxTokens: request.max_tokens,
      toolChoice: request.tool_choice,
      size: inputSizeOf([this.#first.system, this.#first.messages, this.#first.tools]),
    };
  }

  get carry() {
    return this.#conversion.carry;
  }

  get context() {
    return this.#conversion.context;
  }

  reading(upstream: Upstream, limit?: number): CodecContext {
    return this.#conversion.reading(upstream, limit);
  }

  /** Tools that the model may call, with those of system turns. */
  get tools() {
    return allTools(this.#first);
  }

  write(upstream: Upstream, next: NextCall, wishes: LoopWishes): LoopWritten {
    const request = nextRequest(this.#first, next);
    const known = forgetful(request.messages, wishes.forgotten);
    const messages = upstream.dialect === "messages" ? agreeOnCitations(known, this.#serverTools) : known;
    const asked = { ...request, messages };
    const hoisted = wishes.hoisted ? hoistSystemTurns(asked, this.#conversion.carry) : null;
    return {
      ...this.#conversion.write(upstream, wishes.encryptedReasoning, hoisted ?? asked),
      turns: request.messages.length,
      reasoning: withoutReasoning(messages) !== null,
      systemTurns: hoisted === null && messages.some(({ role }) => role === "system"),
    };
  }
}

/** Removes the reasoning of the first `forgotten` messages, which was refused. */
function forgetful(messages: readonly MessageParam[], forgotten: number): MessageParam[] {
  const refused = messages.slice(0, forgotten);
  return [...(withoutReasoning(refused) ?? refused), ...messages.slice(refused.length)];
}

/** A Messages client's declaration of a server tool. */
const declarationOf = (tools: MessagesRequest["tools"], name: ServerToolName) =>
  tools?.find(({ type }) => serverToolOf("messages", type) === name);

const isServerTool = (tool: FunctionTool | JsonObject) => serverToolOf("messages", tool.type) !== undefined;

/** Counts the characters of the pages that a call adds; all else that tools return is short. */
export const pagesLength = ({ added }: NextCall): number =>
  added
    .flatMap(({ results }) => results)
    .flatMap(({ content }) => (typeof content === "string" ? [] : (content ?? [])))
    .reduce((sum, block) => sum + (block.type === "document" ? pageLength(block) : 0), 0);

const pageLength = ({ source }: DocumentBlock): number =>
  "data" in source && typeof source.data === "string" ? source.data.length : 0;

/** Counts bytes of text, images and documents of a part of a request, for its hold; base64 is not text. */
export function inputSizeOf(part: unknown): InputSize {
  const size = { textBytes: 0, images: 0, documents: 0 };
  const visit = (value: unknown): void => {
    if (typeof value === "string") size.textBytes += Buffer.byteLength(value);
    else if (Array.isArray(value)) value.forEach(visit);
    else if (value !== null && typeof value === "object") {
      if ("type" in value && "source" in value && (value.type === "image" || value.type === "document")) {
        const { source } = value;
        if (value.type === "image") size.images += 1;
        else if (source !== null && typeof source === "object" && "type" in source && source.type === "text")
          visit(source);
        else size.documents += 1;
      } else Object.values(value).forEach(visit);
    }
  };
  visit(part);
  return size;
}
