/**
 * Serves a request that declares server tools (design.md §4.5): reads the declarations and the conversation,
 * runs the loop over the route's upstreams, and renders what it says in the client's dialect.
 */
import type { Bill } from "../billing/meter.ts";
import { estimateMicros } from "../billing/price.ts";
import type { Policy, Route, Upstream } from "../config/schema.ts";
import type { Sealer, StreamWriter } from "../dialects/codecs.ts";
import { MessageAccumulator } from "../dialects/messages/accumulate.ts";
import type {
  FunctionTool,
  JsonObject,
  MessagesEvent,
  MessagesRequest,
  ServerToolName,
  ToolChoice,
} from "../dialects/messages/types.ts";
import { codecs } from "../dialects/registry.ts";
import { ApiError } from "../lib/api-error.ts";
import { newId } from "../lib/ids.ts";
import { nothingFound, restoreConversation, type Restored } from "../loop/continuation.ts";
import type { ToolCall } from "../loop/loop.ts";
import { toolFunctions, type ToolOutcome } from "../loop/results.ts";
import { runLoop, type LoopInput } from "../loop/run.ts";
import { metrics } from "../telemetry/metrics.ts";
import { estimateInputTokens } from "../tokens/estimate.ts";
import { toolCapabilities } from "../tools/capabilities.ts";
import { messagesServerTool, readDeclarations, type ServerTools } from "../tools/declarations.ts";
import { CitedSources, linkCitations } from "../tools/links.ts";
import type { RunTool, ToolScope } from "../tools/toolbox.ts";
import { conversationContext } from "../tools/web-fetch/conversation-context.ts";
import type { Upstreams } from "../upstream/ask.ts";
import { askModelOf } from "./ask-model.ts";
import { sendWhole, type InferenceCall } from "./call.ts";
import { Conversion, parsedBody } from "./conversion.ts";
import { Iterations } from "./iterations.ts";
import type { Look } from "./look.ts";
import { eventStreamHeaders } from "./stream-answer.ts";

/** Pings while a tool runs (spec, Limits). */
const PING_MS = 10_000;

export interface ToolServices {
  readonly call: InferenceCall;
  readonly look: Look;
  readonly route: Route;
  readonly policy: Policy;
  readonly sealer: Sealer;
  readonly upstreams: Upstreams;
  readonly runTool: RunTool;
  /** Keeps a conversation on its upstream (design.md §4.6). */
  readonly conversation: string | null;
  /** Takes the hold of the first iteration. */
  readonly open: () => Promise<Bill>;
  /** Headers for an upstream, beside those of its route. */
  readonly headers: (upstream: Upstream) => Readonly<Record<string, string>>;
}

/** @throws ApiError as long as nothing was written; everything is settled or released then. */
export async function serveWithTools(services: ToolServices): Promise<void> {
  await new ToolServing(services).run();
}

class ToolServing {
  readonly #services: ToolServices;
  readonly #tools: ServerTools;
  readonly #restored: Restored;
  readonly #conversion: Conversion;
  readonly #scope: ToolScope;
  readonly #sources = new CitedSources();
  readonly #accumulator = new MessageAccumulator();
  readonly #writer: StreamWriter | null;
  readonly #iterations: Iterations;
  #started = false;

  constructor(services: ToolServices) {
    const { call, look, route, policy, sealer } = services;
    this.#services = services;
    const body = parsedBody(look);
    this.#tools = readDeclarations(call.dialect, body, toolCapabilities(route, policy).webFetch);
    this.#restored =
      call.dialect === "messages"
        ? restoreConversation(body["messages"], new Set(this.#names()), this.#citePages(), sealer)
        : { messages: undefined, ...nothingFound };
    const { messages, pending } = this.#restored;
    const restoredBody = messages === undefined ? body : { ...body, messages };
    this.#conversion = new Conversion(call, look, route, sealer, restoredBody, {
      owed: pending.map(({ id }) => id),
      serverTools: new Set(this.#names()),
    });
    this.#iterations = new Iterations(services, this.#conversion);
    const prior = conversationContext(call.dialect, body);
    for (const { url, text } of this.#restored.pages) prior.addPage(url, text);
    for (const { query, hits } of this.#restored.searches) {
      prior.addQuery(query);
      for (const hit of hits) {
        prior.addFound(hit.url, hit.text);
        this.#sources.add(hit);
      }
    }
    this.#scope = {
      organization: organizationOf(call),
      route,
      policy,
      tools: this.#tools,
      prior,
      credential: (id) => call.snapshot.credential(id),
      askModel: askModelOf(call.snapshot, services.upstreams, route.servesNamespace),
    };
    const { carry, context } = this.#conversion;
    this.#writer = look.stream ? codecs[call.dialect].writeStream(carry, context, this.#annotate) : null;
  }

  /** Annotations of Responses and Chat: every link to something that a tool returned. */
  readonly #annotate = (text: string) =>
    linkCitations(text, this.#sources)
      .filter(this.#mayBeCited)
      .map((link) => ({
        start_index: link.startIndex,
        end_index: link.endIndex,
        url: link.url,
        title: link.title,
      }));

  /** A resent Chat conversation shows its annotations, but no queries: the model's own URLs must not be among them. */
  readonly #mayBeCited = ({ url }: { readonly url: string }) =>
    this.#services.call.dialect !== "chat" || !this.#scope.prior.isOwnWriting(url);

  async run(): Promise<void> {
    const { call, sealer, runTool } = this.#services;
    const bill = await this.#services.open();
    try {
      await runLoop(this.#input(), {
        ask: (build) => this.#iterations.ask(build),
        runTool: ({ name, input }, signal) => {
          const query = input?.["query"];
          if (typeof query === "string") this.#scope.prior.addQuery(query);
          return runTool(name, input ?? {}, this.#scope, signal);
        },
        brought: (tool, outcome) => this.#brought(tool, outcome),
        emit: (events) => this.#emit(events, bill),
        estimate: (request) => this.#estimate(request),
        bill,
        sealer,
        newId,
        signal: call.sink.closed.signal,
        pingMs: PING_MS,
        span: call.record.span,
      });
      this.#end(bill);
    } catch (error) {
      if (call.sink.closed.aborted) return;
      if (this.#writer === null || !this.#started) throw error;
      const told =
        error instanceof ApiError ? error : new ApiError("internal", "Internal error", { cause: error });
      if (told !== error) call.log.error({ id: call.id, err: error }, "a tool loop failed");
      call.record.errorCode = told.code;
      call.sink.end(this.#writer.fail(told));
    }
  }

  #names(): ServerToolName[] {
    const { webSearch, webFetch, xSearch } = this.#tools;
    const declared = { web_search: webSearch, web_fetch: webFetch, x_search: xSearch };
    return (["web_search", "web_fetch", "x_search"] as const).filter((name) => declared[name] !== null);
  }

  /** Citations into pages were asked for, and the model makes them. */
  #citePages(): boolean {
    const { route } = this.#services;
    return this.#tools.webFetch?.citations === true && route.capabilities.documentCitations;
  }

  #input(): LoopInput {
    const { call, look, route, policy } = this.#services;
    const names = this.#names();
    const own = (this.#conversion.request.tools ?? []).filter((tool) => !isServerTool(tool));
    const functions = names.map((name) => ({ ...toolFunctions[name] }) as FunctionTool);
    const { webSearch, webFetch, xSearch, maxToolCalls } = this.#tools;
    const most = route.limits.maxOutputTokens;
    return {
      rules: {
        dialect: call.dialect,
        iterations: policy.iterations,
        maxUses: {
          web_search: webSearch?.maxUses ?? null,
          web_fetch: webFetch?.maxUses ?? null,
          x_search: xSearch?.maxUses ?? null,
        },
        maxToolCalls,
        clientFunctions: own.length > 0,
        maxOutputTokens: Math.min(this.#conversion.request.max_tokens ?? most, most),
        toolChoice: this.#toolChoice(),
      },
      request: { ...this.#conversion.request, model: route.model, tools: [...own, ...functions] },
      pending: this.#restored.pending,
      serverTools: new Set(names),
      parallelCalls: policy.parallelCalls,
      citePages: this.#citePages(),
      streamed: look.stream,
      sources: this.#sources,
    };
  }

  #toolChoice(): ToolChoice | undefined {
    const { tool_choice: choice } = this.#conversion.request;
    const { forced } = this.#tools;
    if (forced === null) return choice;
    const serial =
      choice !== undefined && choice.type !== "none" && choice.disable_parallel_tool_use === true;
    return { type: "tool", name: forced, ...(serial ? { disable_parallel_tool_use: true } : {}) };
  }

  /** What a tool found may be opened from now on; each call is counted, also one that was not run. */
  #brought({ name }: ToolCall, outcome: ToolOutcome): void {
    metrics.toolCalls.inc({ tool: name, outcome: outcome.kind === "error" ? outcome.code : "ok" });
    const { prior } = this.#scope;
    if (outcome.kind === "hits") for (const hit of outcome.hits) prior.addFound(hit.url, hit.text);
    if (outcome.kind === "page") {
      const { url, source } = outcome.page;
      prior.addPage(url, source.type === "text" ? source.text : "");
    }
  }

  #estimate(request: MessagesRequest) {
    const { prices } = this.#services.route;
    const inputTokens = estimateInputTokens(sizeOf(request));
    return estimateMicros(prices, { inputTokens, maxOutputTokens: request.max_tokens ?? 1, n: 1 });
  }

  async #emit(events: readonly MessagesEvent[], bill: Bill): Promise<void> {
    if (this.#writer === null) {
      for (const event of events) this.#accumulator.push(event);
      return;
    }
    const { sink } = this.#services.call;
    const { bytes, terminal } = this.#writer.write(events);
    if (bytes === "" && terminal === "") return;
    if (!this.#started) {
      this.#started = true;
      sink.start(200, eventStreamHeaders(this.#headers(bill)));
    }
    // The loop says the end only once the charge is durable.
    if (!sink.write(bytes + terminal)) await sink.drained();
  }

  #end(bill: Bill): void {
    const { call } = this.#services;
    if (this.#writer !== null) return call.sink.end();
    const message = this.#accumulator.whole();
    if (message === null) throw new Error("a tool loop ended without its end");
    const { carry, context } = this.#conversion;
    const answer = codecs[call.dialect].writeResponse(message, carry, context, this.#annotate);
    const bytes = Buffer.from(JSON.stringify(answer));
    sendWhole(call.sink, bytes, this.#headers(bill));
  }

  #headers(bill: Bill): Record<string, string> {
    const { dropped } = this.#iterations;
    return { ...bill.headers, ...(dropped === null ? {} : { "x-gapura-dropped": dropped }) };
  }
}

/** An organization that left the snapshot under a running batch keeps the policy's limit. */
function organizationOf({ principal, snapshot }: InferenceCall): ToolScope["organization"] {
  const id = principal.organizationId;
  return snapshot.organization(id) ?? { id, toolCallsPerMinute: null };
}

const isServerTool = (tool: FunctionTool | JsonObject) => messagesServerTool(tool as JsonObject) !== null;

/** Text, images and documents of a request, for its hold; base64 is not text. */
function sizeOf(request: MessagesRequest) {
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
  visit(request.system);
  visit(request.messages);
  visit(request.tools);
  return size;
}
