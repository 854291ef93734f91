/**
 * Runs a server-tool loop: asks the model, runs its calls, gives it the results, until the loop machine (`loop.ts`)
 * stops. One runner for the three dialects, live and in batches; it emits Messages events, which the dialect's writer
 * renders.
 *
 * Money (design.md §5, service.md "Prices and billing rules"): the caller opened the bill for the first iteration;
 * every further one is admitted by `advance`, and the end of the answer leaves only after `settle`.
 */
import type { Attributes, Span } from "@opentelemetry/api";
import type { Bill } from "../billing/meter.ts";
import type { Micros } from "../billing/credits.ts";
import { isNothing } from "../billing/token-usage.ts";
import { aliasOfId } from "../dialects/alias.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { messageEnd } from "../dialects/messages/events.ts";
import { isOfUpstream } from "../dialects/upstream-error.ts";
import { promptTokens } from "../dialects/usage.ts";
import type {
  MessagesEvent,
  MessagesUsage,
  StopReason,
  ToolResultBlock,
} from "../dialects/messages/types.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import type { Sealer } from "../dialects/codecs.ts";
import { ApiError } from "../lib/api-error.ts";
import type { NewId } from "../lib/ids.ts";
import { countImplausible } from "../telemetry/counts.ts";
import { beginModelCall, CANCELLED, type ModelCall, type ModelTokens } from "../telemetry/model-call.ts";
import type { Try } from "../telemetry/request-summary.ts";
import { errorCode, inSpan, startSpan } from "../telemetry/trace.ts";
import { type CitedSources, linkCitations } from "../tools/links.ts";
import { CallCredit } from "./call-credit.ts";
import { BrokenAnswer, type ModelAnswer } from "./model-answer.ts";
import {
  askFor,
  admitCalls,
  initialState,
  judgeIteration,
  type JudgedCall,
  type LoopRules,
  type LoopState,
  type ToolCall,
} from "./loop.ts";
import { isInstructed, type AddedTurn, type NextCall } from "./next-request.ts";
import {
  citationForClient,
  noSuchTool,
  resultForClient,
  searchCitation,
  type ToolOutcome,
} from "./results.ts";
import { IterationReader, type Citer } from "./iteration-reader.ts";
import { runCalls } from "./run-calls.ts";
import { MessageStream } from "./message-stream.ts";
import { LoopUsage } from "./loop-usage.ts";

export interface LoopInput {
  readonly rules: LoopRules;
  /** Public model id. */
  readonly model: string;
  /** Upstreams of the route, for traces. */
  readonly upstreams?: readonly { readonly dialect: Dialect }[];
  /** Calls of a resent conversation that were never run. */
  readonly pending: readonly ToolCall[];
  readonly serverTools: ReadonlySet<ServerToolName>;
  /** Most calls that run at once (service.md "Limits"). */
  readonly parallelCalls: number;
  /** Whether page citations were asked for and the model makes them. */
  readonly citePages: boolean;
  /** Whether the model may cite documents: pages, or the client's own. */
  readonly citeDocuments: boolean;
  /** Whether the answer is streamed: after its first byte a failure is an in-band error, never a pause. */
  readonly streamed: boolean;
  /** Everything that tool results named so far; grows as the loop runs. The writers' annotations use it too. */
  readonly sources: CitedSources;
}

export interface LoopDeps {
  /**
   * Asks an upstream. `next` makes the call for the dialect of the chosen upstream.
   * @throws ApiError when no upstream took the call, BrokenAnswer when one did and its answer is corrupt.
   */
  ask(next: (target: Dialect) => NextCall, span: Span | null): Promise<ModelAnswer>;
  /** @throws ApiError when no upstream can be sent such a call. */
  judge(next: (target: Dialect) => NextCall): Promise<void>;
  readonly runTool: (call: ToolCall, signal: AbortSignal) => Promise<ToolOutcome>;
  /** Called with each call's outcome, in call order, also of a call that a limit kept from running. */
  readonly brought: (call: ToolCall, outcome: ToolOutcome) => Promise<void>;
  /** Hands events to the client's side; resolves when there is room for more. */
  readonly emit: (events: readonly MessagesEvent[]) => Promise<void>;
  /** Returns the most that an iteration may cost, in micro-credits. */
  estimate(next: NextCall): Micros;
  /** Returns the most that a call of this tool may cost, in micro-credits. */
  readonly fee: (name: ServerToolName) => Micros;
  readonly bill: Bill;
  readonly sealer: Sealer;
  readonly newId: NewId;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
  /** Milliseconds between pings while a tool runs (service.md "Limits"). */
  readonly pingMs: number;
  /** The request's span; null when nothing is traced. */
  readonly span: Span | null;
  /** The last call to an upstream, for traces; undefined: there was none. */
  readonly lastTry?: () => Try | undefined;
}

/**
 * @throws ApiError when the answer failed. Before anything was emitted it can still be a plain HTTP error.
 * Everything is settled or released when this returns or throws.
 */
export async function runLoop(input: LoopInput, deps: LoopDeps): Promise<void> {
  await new Loop(input, deps).run();
}

class Loop {
  readonly #input: LoopInput;
  readonly #deps: LoopDeps;
  readonly #tally = new LoopUsage();
  readonly #credit: CallCredit;
  #state: LoopState = initialState;
  /** Turns that the loop added so far. */
  readonly #added: AddedTurn[] = [];
  readonly #message: MessageStream;
  #upstream: string | null = null;
  /** Calls that an upstream took, the final one included. */
  #asked = 0;
  /** How the model ended its last iteration. */
  #stop: { sequence: string | null; details: IterationReader["stopDetails"] } = {
    sequence: null,
    details: undefined,
  };
  /** Whether a later iteration failed. */
  #failed = false;
  /** Whether the last iteration called only tools that nobody has. */
  #strayed = false;

  constructor(input: LoopInput, deps: LoopDeps) {
    this.#input = input;
    this.#deps = deps;
    this.#credit = new CallCredit(() => this.#spend(), deps.fee);
    const { emit, newId } = deps;
    const { streamed, model } = input;
    this.#message = new MessageStream({ emit, newId, streamed, model });
  }

  async run(): Promise<void> {
    try {
      if (this.#input.pending.length > 0) {
        await this.#refuseUnsendable();
        const { state, calls } = admitCalls(this.#input.rules, this.#state, this.#input.pending);
        this.#state = state;
        const results = await this.#runCalls(calls);
        // The conversation has the aliases of the ids, which every dialect takes (rule 2.8).
        const hubResults = results.map((result) => ({
          ...result,
          tool_use_id: aliasOfId(result.tool_use_id),
        }));
        this.#added.push({ turn: [], results: hubResults });
        // The calls are charged before the model is asked, which happens only if credit is left for it.
        const next = this.#deps.estimate(this.#next());
        if ((await this.#deps.bill.spend(this.#tally.observed, next)) <= 0n)
          return await this.#finish("pause_turn");
      }
      for (;;) {
        const reason = await this.#iterate();
        if (reason !== null) return await this.#finish(reason);
      }
    } catch (error) {
      await this.#abandon();
      throw error;
    }
  }

  /**
   * Refuses a request that no upstream can be sent before its resent calls run, which may cost something (rule 3.1): with
   * results in place of theirs.
   */
  async #refuseUnsendable(): Promise<void> {
    const results = this.#input.pending.map(({ id }): ToolResultBlock => ({
      type: "tool_result",
      tool_use_id: aliasOfId(id),
      content: "…",
    }));
    this.#added.push({ turn: [], results });
    await this.#deps.judge((target) => this.#next(target));
    this.#added.pop();
  }

  /** Parts two iterations as a server tool between them does (rules 2.15, 3.12); no client sees a call of a tool that nobody has. */
  async #part(): Promise<void> {
    if (this.#input.rules.dialect === "messages") return;
    const id = this.#deps.newId("srvtoolu");
    await this.#message.block({ type: "server_tool_use", id, name: "", input: {} });
  }

  /**
   * Pauses before the next call of a model. A Messages client sends the answer's content back as it is, and most upstreams
   * refuse a conversation that ends in the model's own text. The content shows no call of a tool that nobody has, so that right
   * behind such calls it would end in text, or be empty: a failed call is added, and the model goes on from its result.
   */
  async #pause(): Promise<"pause_turn"> {
    const { rules, serverTools, citePages } = this.#input;
    const [name] = serverTools;
    if (!this.#strayed || rules.dialect !== "messages" || name === undefined) return "pause_turn";
    const call = { id: this.#deps.newId("srvtoolu"), name, input: {} };
    await this.#message.block({ type: "server_tool_use", ...call, caller: { type: "direct" } });
    const failed = { kind: "error", code: "invalid_tool_input" } as const;
    await this.#message.block(resultForClient(call, failed, citePages, null));
    return "pause_turn";
  }

  /** One upstream call and the calls it leads to; the stop reason when it was the last. */
  async #iterate(): Promise<StopReason | null> {
    const { rules } = this.#input;
    this.#deps.signal.throwIfAborted();
    const next = this.#next();
    if (this.#asked > 0 && !(await this.#deps.bill.advance(this.#tally.observed, this.#deps.estimate(next))))
      return await this.#pause();
    // Results of resent calls are charged, and the client gets them whatever becomes of the first iteration.
    const first = this.#asked === 0 && isNothing(this.#tally.observed);
    const asked = await this.#ask(first);
    if (asked === null) return await this.#pause();

    const { read } = asked;
    const judged = judgeIteration(rules, this.#state, {
      stopReason: read.stopReason,
      calls: read.calls,
      clientCalls: read.clientCalls.length,
      strayCalls: read.strayCalls.length,
      outputTokens: asked.usage.output_tokens,
    });
    this.#state = judged.state;
    this.#stop = { sequence: read.stopSequence, details: read.stopDetails };
    const results = await this.#runCalls(judged.calls);
    if (judged.next.kind === "stop") {
      if (judged.next.reason === "tool_use")
        for (const call of read.clientCalls) await this.#message.block(call);
      return judged.next.reason;
    }
    this.#strayed = judged.calls.length === 0;
    if (this.#strayed) await this.#part();
    this.#added.push({ turn: read.blocks, results: [...results, ...read.strayCalls.map(noSuchTool)] });
    this.#state = { ...this.#state, final: judged.next.final };
    return null;
  }

  /** Asks and reads to the end. null: a whole Messages answer pauses because its upstream failed. */
  async #ask(first: boolean): Promise<Asked | null> {
    const target: { dialect: Dialect } = { dialect: "messages" };
    const read = new IterationReader({
      serverTools: this.#input.serverTools,
      clientTools: this.#input.rules.clientFunctions,
      final: this.#state.final,
      nextIndex: this.#message.nextIndex,
      started: this.#message.started,
      newId: this.#deps.newId,
      citer: this.#citer(target),
    });
    const { model, streamed } = this.#input;
    const call = beginModelCall(this.#deps.span, {
      model,
      upstreams: this.#input.upstreams ?? [],
      iteration: this.#asked + 1,
      stream: streamed,
    });
    let answer: ModelAnswer | null = null;
    try {
      answer = await this.#deps.ask((dialect) => {
        target.dialect = dialect;
        return this.#next(dialect);
      }, call?.span ?? null);
      this.#asked += 1;
      this.#upstream = answer.upstream;
      target.dialect = answer.dialect;
      for await (const events of answer.events) {
        const shown = events.flatMap((event) => read.push(event));
        this.#tally.observe(answer.usage);
        this.#deps.bill.observe(this.#tally.observed);
        this.#message.nextIndex = read.nextIndex;
        await this.#message.say(shown);
      }
      const { usage, upstream } = answer;
      this.#commit(usage);
      call?.end({ tokens: modelTokens(usage), attributes: upstreamAttribute(upstream) });
      return { read, usage };
    } catch (error) {
      return await this.#askFailed(error, { first, answer, call });
    }
  }

  /**
   * Charges what came of an iteration that failed. Returns null where a whole Messages answer pauses (rule 3.8).
   * @throws the error itself while nothing was billed before, else one that tells that what was done is billed
   */
  async #askFailed(error: unknown, { first, answer, call }: FailedAsk): Promise<null> {
    const broken = error instanceof BrokenAnswer ? error : null;
    const told = broken === null ? error : broken.error;
    if (answer === null && broken !== null) {
      this.#asked += 1;
      this.#upstream = broken.upstream;
    }
    // An answer that was cut, or is garbage, is charged for what came; a refused call is not.
    const usage = broken?.usage ?? answer?.usage ?? null;
    if (usage === null) this.#tally.discard();
    else this.#commit(usage);
    call?.end({
      tokens: usage === null ? null : modelTokens(usage),
      attributes: usage === null ? {} : upstreamAttribute(this.#upstream),
      error: this.#deps.signal.aborted ? CANCELLED : errorCode(told),
      last: this.#deps.lastTry?.(),
    });
    if (first || this.#deps.signal.aborted) throw told;
    this.#failed = true;
    // A failed upstream pauses the answer (rule 3.8), a corrupt answer fails it (service.md "What becomes of an item").
    const pauses = this.#input.rules.dialect === "messages" && !this.#input.streamed;
    if (pauses && broken?.corrupt !== true) return null;
    // A stream shows the results of resent calls before it fails (rule 3.8).
    if (this.#input.streamed) await this.#message.begin();
    // The client's SDK must not repeat what has been billed, and must not see the provider's words.
    const isOurs = told instanceof ApiError && told.code === "unavailable" && !isOfUpstream(told);
    const [code, who] = isOurs
      ? (["unavailable", "the service could not go on"] as const)
      : (["upstream_error", "the upstream failed"] as const);
    throw new ApiError(code, `${who}; what was done so far has been billed`, { retry: false, cause: told });
  }

  /** Ends an iteration: what it used stays. */
  #commit(usage: MessagesUsage): void {
    if (usage.implausible === true) countImplausible(this.#input.model, this.#upstream ?? "");
    this.#tally.observe(usage);
    this.#tally.commit();
  }

  #next(target?: Dialect): NextCall {
    const { rules } = this.#input;
    const { toolChoice, maxTokens } = askFor(rules, this.#state);
    return {
      added: [...this.#added],
      toolChoice,
      maxTokens,
      instructed: isInstructed(rules.dialect, target),
    };
  }

  #runCalls(calls: readonly JudgedCall[]): Promise<readonly ToolResultBlock[]> {
    const { rules, parallelCalls, citePages } = this.#input;
    const { pingMs, sealer, signal } = this.#deps;
    const brought = (call: ToolCall, outcome: ToolOutcome) => {
      this.#cite(call, outcome);
      return this.#deps.brought(call, outcome);
    };
    const finished = async ({ name }: ToolCall, outcome: ToolOutcome) => {
      this.#tally.tool(name, outcome);
      if (outcome.kind !== "error") await this.#spend();
    };
    const shown = rules.dialect === "messages" ? sealer : null;
    const runTool: LoopDeps["runTool"] = (call, during) => this.#runTool(call, during);
    const billing = { credit: this.#credit, finished, brought };
    const job = { message: this.#message, runTool, parallelCalls, pingMs, citePages, signal };
    return runCalls({ ...job, ...billing, sealer: shown }, calls, this.#asked === 0);
  }

  /** Charges what was done so far, come what may. @returns the credit left beyond it. */
  #spend(): Promise<Micros> {
    return this.#deps.bill.spend(this.#tally.observed, 0n);
  }

  #runTool(call: ToolCall, signal: AbortSignal): Promise<ToolOutcome> {
    const span = startSpan(`execute_tool ${call.name}`, this.#deps.span, () => ({
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": call.name,
      "gen_ai.tool.call.id": call.id,
    }));
    return inSpan(
      span,
      () => this.#deps.runTool(call, signal),
      (outcome) => ({ "gapura.tool.outcome": outcome.kind === "error" ? outcome.code : "ok" }),
    );
  }

  #cite({ input }: ToolCall, outcome: ToolOutcome): void {
    const { rules, sources } = this.#input;
    if (outcome.kind === "hits") for (const hit of outcome.hits) sources.add(hit);
    // A Messages client's citations into a page are the model's own (service.md "Declarations in Messages").
    if (outcome.kind === "page" && rules.dialect !== "messages") {
      const { url, title, source } = outcome.page;
      const page = { url, title, text: source.type === "text" ? source.text : "" };
      sources.add(page);
      // The model knows a page behind a redirect by the address that it asked for.
      if (typeof input?.["url"] === "string") sources.add(page, input["url"]);
    }
  }

  #citer(target: { readonly dialect: Dialect }): Citer {
    const { rules, sources, citeDocuments } = this.#input;
    const { sealer } = this.#deps;
    if (rules.dialect !== "messages") return { native: () => null, ofText: () => [] };
    return {
      native: (citation) => citationForClient(citation, { sources, documents: citeDocuments }, sealer),
      ofText: (text) =>
        target.dialect === "messages"
          ? []
          : linkCitations(text, sources).map((link) =>
              searchCitation(link.url, link.title, link.source.text, sealer),
            ),
    };
  }

  /**
   * Charges everything, and only then emits the end of a stream. A whole answer gets its end first: it leaves once this is over, and
   * one that cannot be written is charged as the error that it is.
   */
  async #finish(reason: StopReason): Promise<void> {
    const { streamed } = this.#input;
    if (!streamed) await this.#sayEnd(reason);
    await this.#deps.bill.settle({
      ...this.#tally.observed,
      status: this.#deps.signal.aborted ? "cancelled" : this.#failed ? "error" : "ok",
      iterations: this.#asked,
      upstream: this.#upstream,
    });
    if (streamed) await this.#sayEnd(reason);
  }

  async #sayEnd(reason: StopReason): Promise<void> {
    const { sequence, details } = this.#stop;
    await this.#message.begin();
    const end = {
      stop_reason: reason,
      stop_sequence: reason === "stop_sequence" ? sequence : null,
      ...(details === undefined ? {} : { stop_details: details }),
    };
    await this.#message.say(messageEnd(end, this.#tally.usage));
  }

  /** Ends an answer that will not be finished: what was used is charged, a request that used nothing is free. */
  async #abandon(): Promise<void> {
    const observed = this.#tally.observed;
    if (isNothing(observed)) return this.#deps.bill.release();
    await this.#deps.bill.settle({
      ...observed,
      status: this.#deps.signal.aborted ? "cancelled" : "error",
      iterations: this.#asked,
      upstream: this.#upstream,
    });
  }
}

interface Asked {
  readonly read: IterationReader;
  readonly usage: MessagesUsage;
}

/** An iteration that failed. */
interface FailedAsk {
  /** Whether nothing was billed before it. */
  readonly first: boolean;
  /** null: it failed before an upstream answered. */
  readonly answer: ModelAnswer | null;
  /** null: nothing is traced. */
  readonly call: ModelCall | null;
}

const upstreamAttribute = (upstream: string | null): Attributes =>
  upstream === null ? {} : { "gapura.upstream": upstream };

const modelTokens = (usage: MessagesUsage): ModelTokens => ({
  input: promptTokens(usage),
  output: usage.output_tokens,
});
