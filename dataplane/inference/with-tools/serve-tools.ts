/**
 * Serves a request that declares server tools (design.md §4.5): reads the declarations and the conversation,
 * runs the loop over the route's upstreams, and writes its events in the client's dialect.
 */
import type { Bill, ToolUsage } from "../../billing/meter.ts";
import { costMicros, estimateMicros, pricesAt } from "../../billing/prices/price.ts";
import { noTokens, noTools } from "../../billing/token-usage.ts";
import type { Policy, Prices } from "../../config/schema.ts";
import type { Sealer, StreamWriter } from "../../dialects/codecs.ts";
import { stringOf } from "../../dialects/fields.ts";
import { MessageAccumulator } from "../../dialects/messages/accumulate.ts";
import type { BlockDelta, MessagesEvent, ToolChoice } from "../../dialects/messages/types.ts";
import type { ServerToolName } from "../../dialects/server-tools.ts";
import { codecs } from "../../dialects/registry.ts";
import { writeEvents } from "../../dialects/write-events.ts";
import { apiErrorOf } from "../../store/store-away.ts";
import { bodyLimits } from "../../lib/body-limits.ts";
import type { ByteLease } from "../../lib/byte-budget.ts";
import { newId } from "../../lib/ids.ts";
import type { ToolCall } from "../../loop/loop.ts";
import type { NextCall } from "../../loop/next-request.ts";
import type { ToolOutcome } from "../../loop/results.ts";
import { runLoop, type LoopInput } from "../../loop/run.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { estimateInputTokens } from "../../tokens/estimate.ts";
import { type CitedSources, linkCitations } from "../../tools/links.ts";
import { callLimits, type RunOutcome, type RunTool, type ToolScope } from "../../tools/toolbox.ts";
import { MAX_POSTS } from "../../tools/x-search/search-posts.ts";
import { answerJob, type AnswerJob } from "../answer/answer-job.ts";
import { askModelOf } from "./ask-model.ts";
import { sendWhole, type InferenceCall } from "../call.ts";
import { ClientStream } from "../answer/client-stream.ts";
import { CHARACTER_BYTES, HeldBytes } from "../answer/held-bytes.ts";
import { Iterations, type IterationServices } from "./iterations.ts";
import { declaredToolNames, inputSizeOf } from "./open-loop.ts";

/** Interval of pings while a tool runs (service.md "Limits"). */
const PING_MS = 10_000;

export interface ToolServices extends IterationServices {
  readonly policy: Policy;
  readonly sealer: Sealer;
  readonly runTool: RunTool;
  /** Takes the hold of the first iteration. */
  readonly open: () => Promise<Bill>;
  /** Returns how many output tokens are held for an output limit (rule 9.7). */
  readonly heldOutput: (limit: number) => number;
  /** Whether an iteration's upstream may compact the conversation first. */
  readonly compacts: boolean;
}

/** Serves the request. @returns its bill. @throws ApiError as long as nothing was written; its holds are then settled or released. */
export function serveWithTools(services: ToolServices): Promise<Bill> {
  return new ToolServing(services).run();
}

class ToolServing {
  readonly #services: ToolServices;
  readonly #scope: ToolScope;
  readonly #sources: CitedSources;
  readonly #accumulator: MessageAccumulator;
  readonly #writer: StreamWriter | null;
  readonly #iterations: Iterations;
  readonly #prices: Prices;
  /** null as long as nothing was sent, and for a whole answer. */
  #stream: ClientStream | null = null;
  /** A whole answer, once it is written. */
  #whole: Buffer | null = null;
  /** Counts the model's texts, blobs among them, which are kept until the end. */
  readonly #texts: HeldBytes;
  #characters = 0;
  /** Leases for the pages that the conversation holds; null once the request is over. */
  #pages: ByteLease[] | null = [];

  constructor(services: ToolServices) {
    const { call, look, route, policy, work } = services;
    this.#services = services;
    this.#prices = pricesAt(route.prices, call.acceptedAt);
    this.#sources = work.sources;
    this.#iterations = new Iterations(services);
    this.#texts = new HeldBytes(call.bodyLease);
    this.#scope = {
      organization: organizationOf(call),
      route,
      policy,
      tools: work.beginning.tools,
      prior: work.prior,
      keep: (lease) => this.#keep(lease),
      credential: (id) => call.snapshot.credential(id),
      askModel: askModelOf(
        call.snapshot,
        services.upstreams,
        call.bodyLease,
        call.principal.organizationId,
        route.servesNamespace,
      ),
    };
    const { carry, context } = work;
    this.#accumulator = new MessageAccumulator(this.#annotatesParts ? this.#annotate : undefined);
    this.#writer = look.stream ? codecs[call.dialect].writeStream(carry, context, this.#annotate) : null;
  }

  /** Keeps a page's lease if there is room and the request is not over: a tool call may end after it. */
  #keep(lease: ByteLease): boolean {
    const held = this.#pages?.reduce((sum, { bytes }) => sum + bytes, this.#services.look.bodyBytes) ?? 0;
    const isKept = this.#pages !== null && held + lease.bytes <= bodyLimits.bytes;
    if (isKept) this.#pages?.push(lease);
    else lease.release();
    return isKept;
  }

  /** Annotations of Responses and Chat: every link to something that a tool returned. */
  readonly #annotate = (text: string) => {
    const links = linkCitations(text, this.#sources);
    // Each URL is judged only once: that takes longer than finding its link.
    const urls = new Set(links.map(({ url }) => url));
    const cited = new Set([...urls].filter((url) => this.#mayBeCited(url)));
    return links
      .filter(({ url }) => cited.has(url))
      .map((link) => ({
        start_index: link.startIndex,
        end_index: link.endIndex,
        url: link.url,
        title: link.title,
      }));
  };

  /** Whether each part cites, whole as streamed, what was found when it ended (Responses); Chat's one text cites all that was found. */
  get #annotatesParts(): boolean {
    return this.#services.call.dialect === "responses";
  }

  /** A resent Chat conversation shows annotations but no queries: a URL that the model wrote itself must not become an annotation. */
  #mayBeCited(url: string): boolean {
    return this.#services.call.dialect !== "chat" || !this.#scope.prior.isOwnWriting(url);
  }

  async run(): Promise<Bill> {
    try {
      return await this.#run();
    } finally {
      for (const lease of this.#pages ?? []) lease.release();
      this.#pages = null;
      this.#texts.release();
    }
  }

  async #run(): Promise<Bill> {
    const { call, sealer, runTool } = this.#services;
    call.beginTools?.(callLimits(this.#scope));
    const bill = await this.#services.open();
    call.summary.bill = bill;
    try {
      await runLoop(this.#input(), {
        ask: (next, span) => this.#iterations.ask(next, span),
        judge: (next) => this.#iterations.judge(next),
        runTool: ({ name, input }, signal) => {
          const query = input?.["query"];
          if (typeof query === "string") this.#scope.prior.addQuery(query);
          return this.#untilShutdown(signal, (either) => runTool(name, input ?? {}, this.#scope, either));
        },
        brought: (tool, outcome) => this.#brought(tool, outcome),
        emit: (events) => this.#emit(events, bill),
        estimate: (next) => this.#estimate(next),
        fee: (name) => costMicros(this.#prices, noTokens, dearestCall[name]).total,
        bill,
        sealer,
        newId,
        signal: call.sink.closed.signal,
        pingMs: PING_MS,
        span: call.summary.span,
        lastTry: () => call.summary.calls.at(-1),
      });
      this.#end(bill);
    } catch (error) {
      if (call.sink.closed.aborted) return bill;
      if (this.#stream === null) throw error;
      const told = apiErrorOf(error);
      if (told !== error) call.log.error({ request_id: call.id, err: error }, "a tool loop failed");
      this.#stream.fail(told);
    }
    return bill;
  }

  /**
   * Runs a tool, at most until shutdown: its result is then `unavailable`, also while its call still waits for room. The model's next
   * call meets the same shutdown.
   */
  async #untilShutdown(
    signal: AbortSignal,
    run: (signal: AbortSignal) => Promise<RunOutcome>,
  ): Promise<RunOutcome> {
    const { shutdown } = this.#services.call;
    if (shutdown === undefined) return run(signal);
    const over = new AbortController();
    const nothing = Promise.withResolvers<RunOutcome>();
    const end = () => {
      over.abort();
      nothing.resolve({ kind: "error", code: "unavailable" });
    };
    const listener = shutdown.listen(end);
    if (shutdown.hasCome) end();
    try {
      return await Promise.race([run(AbortSignal.any([signal, over.signal])), nothing.promise]);
    } catch (error) {
      if (!over.signal.aborted || signal.aborted) throw error;
      return await nothing.promise;
    } finally {
      shutdown.forget(listener);
    }
  }

  #input(): LoopInput {
    const { call, look, route, policy, work } = this.#services;
    const { tools, pending, citePages, citeDocuments, clientFunctions, maxTokens } = work.beginning;
    const most = route.limits.maxOutputTokens;
    return {
      rules: {
        dialect: call.dialect,
        iterations: policy.iterations,
        maxUses: {
          web_search: tools.webSearch?.maxUses ?? null,
          web_fetch: tools.webFetch?.maxUses ?? null,
          x_search: tools.xSearch?.maxUses ?? null,
        },
        maxToolCalls: tools.maxToolCalls,
        clientFunctions,
        maxOutputTokens: Math.min(maxTokens ?? most, most),
        toolChoice: this.#toolChoice(),
      },
      model: route.model,
      upstreams: route.upstreams,
      pending,
      serverTools: new Set(declaredToolNames(tools)),
      parallelCalls: policy.parallelCalls,
      citePages,
      citeDocuments,
      streamed: look.stream,
      sources: this.#sources,
    };
  }

  #toolChoice(): ToolChoice | undefined {
    const { toolChoice: choice, tools } = this.#services.work.beginning;
    const { forced } = tools;
    if (forced === null) return choice;
    const serial =
      choice !== undefined && choice.type !== "none" && choice.disable_parallel_tool_use === true;
    return { type: "tool", name: forced, ...(serial ? { disable_parallel_tool_use: true } : {}) };
  }

  /** Lets the model open what a tool found, and counts the call, also one that was not run. */
  async #brought({ name }: ToolCall, outcome: ToolOutcome): Promise<void> {
    const said = outcome.kind === "error" ? outcome.code : "ok";
    metrics.toolCalls.inc({ tool: name, outcome: said });
    const { summary } = this.#services.call;
    const toolCalls = (summary.toolCalls ??= new Map());
    toolCalls.set(`${name} ${said}`, (toolCalls.get(`${name} ${said}`) ?? 0) + 1);
    const { prior } = this.#scope;
    if (outcome.kind === "hits") for (const hit of outcome.hits) prior.addFound(hit.url, hit.text);
    if (outcome.kind === "page") {
      const { url, source } = outcome.page;
      await prior.addOpenedPage(url, source.type === "text" ? source.text : "");
    }
  }

  #estimate(next: NextCall) {
    const { size } = this.#services.work.beginning;
    const added = inputSizeOf(next.added);
    const inputTokens = estimateInputTokens({
      textBytes: size.textBytes + added.textBytes,
      images: size.images + added.images,
      documents: size.documents + added.documents,
    });
    const { tiers, compacts, heldOutput } = this.#services;
    const maxOutputTokens = heldOutput(next.maxTokens);
    const work = { inputTokens, maxOutputTokens, n: 1, tiers: tiers.possible, compacts };
    return estimateMicros(this.#prices, work);
  }

  async #emit(events: readonly MessagesEvent[], bill: Bill): Promise<void> {
    for (const event of events)
      if (event.type === "content_block_delta") this.#characters += lengthOf(event.delta);
    this.#texts.hold(this.#characters * CHARACTER_BYTES);
    if (this.#writer === null) {
      for (const event of events) this.#accumulator.push(event);
      // Written before it is charged: one that cannot be written is charged as an error.
      if (events.at(-1)?.type === "message_stop") this.#whole = this.#written();
      return;
    }
    const writer = this.#writer;
    const { bytes, terminal } = writeEvents(writer, events);
    if (bytes === "" && terminal === "") return;
    if (this.#stream === null) {
      this.#stream = new ClientStream(this.#job(bill), null, (error) => writer.fail(error));
      this.#stream.begin();
    }
    // The loop emits the terminal event only once the charge is durable.
    if (!this.#stream.take(bytes + terminal)) await this.#stream.drained();
  }

  #end(bill: Bill): void {
    const { call } = this.#services;
    if (this.#writer !== null) return call.sink.end();
    if (this.#whole === null) throw new Error("a tool loop ended without its end");
    sendWhole(call.sink, this.#whole, this.#job(bill).headers);
  }

  /** Writes the whole answer. @throws ApiError upstream_error when it is none that a client may get. */
  #written(): Buffer {
    const message = this.#accumulator.whole();
    if (message === null) throw new Error("a tool loop ended without its beginning");
    const { call, work } = this.#services;
    const annotate = this.#annotatesParts ? undefined : this.#annotate;
    const answer = codecs[call.dialect].writeResponse(message, work.carry, work.context, annotate);
    return Buffer.from(JSON.stringify(answer));
  }

  #job(bill: Bill): AnswerJob {
    const { call, place, route } = this.#services;
    return answerJob(call, place, route.model, bill, this.#iterations.dropped);
  }
}

/** Returns how many characters of a delta are kept. */
function lengthOf(delta: BlockDelta): number {
  switch (delta.type) {
    case "text_delta":
      return delta.text.length;
    case "thinking_delta":
      return delta.thinking.length;
    case "signature_delta":
      return delta.signature.length;
    case "input_json_delta":
      return delta.partial_json.length;
    case "compaction_delta":
      // Whatever form an upstream gives them.
      return (stringOf(delta.content)?.length ?? 0) + (stringOf(delta.encrypted_content)?.length ?? 0);
    default:
      return 0;
  }
}

/** The usage of each tool's most expensive call. */
const dearestCall: Readonly<Record<ServerToolName, ToolUsage>> = {
  web_search: { ...noTools, webSearches: 1 },
  web_fetch: { ...noTools, webFetches: 1 },
  x_search: { ...noTools, xSearches: 1, xPosts: MAX_POSTS, xProfiles: MAX_POSTS },
};

/** Returns the call's organization. One that left the snapshot while its batch runs has the policy's limit. */
function organizationOf({ principal, snapshot }: InferenceCall): ToolScope["organization"] {
  const id = principal.organizationId;
  return snapshot.organization(id) ?? { id, toolCallsPerMinute: null };
}
