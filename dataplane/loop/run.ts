/**
 * Runs a server-tool loop: asks the model, runs the calls it makes, tells it the results, until the round
 * machine (`loop.ts`) says stop. One runner for the three dialects, live and in batches; what it says is
 * Messages events, which the dialect's writer renders.
 *
 * Money (design.md §5, spec "Prices and billing rules"): the caller opened the bill for the first iteration;
 * every further one is admitted by `advance`, and the end of the answer leaves only after `settle`.
 */
import type { Bill, Micros } from "../billing/meter.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type {
  JsonValue,
  MessageParam,
  MessagesEvent,
  MessagesRequest,
  MessagesResponse,
  ServerToolName,
  StopReason,
  ToolResultBlock,
} from "../dialects/messages/types.ts";
import type { Sealer } from "../dialects/codecs.ts";
import { ApiError } from "../lib/api-error.ts";
import type { NewId } from "../lib/ids.ts";
import { type CitedSources, linkCitations } from "../tools/links.ts";
import { addResults } from "./continuation.ts";
import {
  askFor,
  admitCalls,
  initialState,
  judge,
  type JudgedCall,
  type LoopRules,
  type LoopState,
  type ToolCall,
} from "./loop.ts";
import { resultForClient, resultForModel, searchCitation, type ToolOutcome } from "./results.ts";
import { Round, wholeBlock, type Citer } from "./round.ts";
import { Tally } from "./tally.ts";

/** One upstream call under way. */
export interface Exchange {
  /** Name of the upstream that answers. */
  readonly upstream: string;
  readonly dialect: Dialect;
  /** Ends after `message_stop`; throws an ApiError when the upstream fails or its answer is corrupt. */
  readonly events: AsyncIterable<readonly MessagesEvent[]>;
}

export interface LoopInput {
  readonly rules: LoopRules;
  /** The request with the functions of the server tools among its tools. */
  readonly request: MessagesRequest;
  /** Calls of a resent conversation that were never run. */
  readonly pending: readonly ToolCall[];
  readonly serverTools: ReadonlySet<ServerToolName>;
  /** At most this many calls run at once (spec: 4). */
  readonly parallelCalls: number;
  /** Page citations were asked for and the model makes them. */
  readonly citePages: boolean;
  /** The answer is streamed: after its first byte a failure is an in-band error, never a pause. */
  readonly streamed: boolean;
  /** Everything that tool results named so far; grows as the loop runs. The writers' annotations use it too. */
  readonly sources: CitedSources;
}

export interface LoopDeps {
  /**
   * Asks an upstream. `build` writes the request for whatever dialect the chosen upstream speaks.
   * @throws ApiError when no upstream took the call.
   */
  ask(build: (target: Dialect) => MessagesRequest): Promise<Exchange>;
  runTool(call: ToolCall, signal: AbortSignal): Promise<ToolOutcome>;
  /** Hands events to the client's side; resolves when there is room for more. */
  emit(events: readonly MessagesEvent[]): Promise<void>;
  /** What an iteration may cost at the most, in micro-credits. */
  estimate(request: MessagesRequest): Micros;
  readonly bill: Bill;
  readonly sealer: Sealer;
  readonly newId: NewId;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
  /** Milliseconds between pings while a tool runs (spec: 10 seconds). */
  readonly pingMs: number;
}

/** Marks where the loop's instruction begins in a system prompt, so that it is added once. */
export const INSTRUCTION_MARK = "[svc:servertools]";
const INSTRUCTION =
  `${INSTRUCTION_MARK} When your answer uses something that a tool returned, cite it with a markdown link ` +
  "of the form [title](url), with the exact URL that the tool gave.";

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
  readonly #tally = new Tally();
  #state: LoopState = initialState;
  #messages: readonly MessageParam[];
  /** Results that were run before the first iteration, waiting for the message to begin. */
  #before: MessagesEvent[] = [];
  #nextIndex = 0;
  #started = false;
  #upstream: string | null = null;
  /** Upstream calls that were taken, the final one included. */
  #asked = 0;
  /** How the model ended its last iteration. */
  #stop: { sequence: string | null; details: Round["stopDetails"] } = { sequence: null, details: undefined };
  /** A later iteration failed, and the answer pauses instead. */
  #failed = false;
  #settled = false;

  constructor(input: LoopInput, deps: LoopDeps) {
    this.#input = input;
    this.#deps = deps;
    this.#messages = input.request.messages;
  }

  async run(): Promise<void> {
    try {
      if (this.#input.pending.length > 0) {
        const { state, calls } = admitCalls(this.#input.rules, this.#state, this.#input.pending);
        this.#state = state;
        const results = await this.#runCalls(calls);
        this.#remember([], results);
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

  /** One upstream call and the calls it leads to; the stop reason when it was the last. */
  async #iterate(): Promise<StopReason | null> {
    const { rules } = this.#input;
    const next = this.#request();
    if (this.#asked > 0 && !(await this.#deps.bill.advance(this.#tally.observed, this.#deps.estimate(next))))
      return "pause_turn";
    const first = this.#asked === 0;
    const round = await this.#ask(first);
    if (round === null) return "pause_turn";

    const judged = judge(rules, this.#state, {
      stopReason: round.stopReason,
      calls: round.calls,
      clientCalls: round.clientCalls.length,
      outputTokens: round.usage.output_tokens,
    });
    this.#state = judged.state;
    this.#stop = { sequence: round.stopSequence, details: round.stopDetails };
    const results = await this.#runCalls(judged.calls);
    if (judged.next.kind === "stop") {
      if (judged.next.reason === "tool_use")
        for (const call of round.clientCalls) await this.#emitBlock(call);
      return judged.next.reason;
    }
    this.#remember(round.blocks, results);
    this.#state = { ...this.#state, final: judged.next.final };
    return null;
  }

  /** Asks and reads to the end. null: a whole Messages answer pauses because its upstream failed. */
  async #ask(first: boolean): Promise<Round | null> {
    const target: { dialect: Dialect } = { dialect: "messages" };
    const round = new Round({
      serverTools: this.#input.serverTools,
      final: this.#state.final,
      nextIndex: this.#nextIndex,
      started: this.#started,
      newId: this.#deps.newId,
      citer: this.#citer(target),
    });
    try {
      const exchange = await this.#deps.ask((dialect) => {
        target.dialect = dialect;
        return this.#request(dialect);
      });
      this.#asked += 1;
      this.#upstream = exchange.upstream;
      target.dialect = exchange.dialect;
      for await (const events of exchange.events) {
        const shown = events.flatMap((event) => round.push(event));
        this.#tally.observe(round.usage);
        this.#deps.bill.observe(this.#tally.observed);
        this.#nextIndex = round.nextIndex;
        await this.#emit(shown);
      }
      this.#tally.commit();
      return round;
    } catch (error) {
      // What streamed before it was cut is paid for; a call that was refused outright is not.
      if (round.usage.output_tokens > 0 || round.blocks.length > 0) this.#tally.commit();
      else this.#tally.discard();
      if (first || this.#deps.signal.aborted) throw error;
      this.#failed = true;
      if (this.#input.rules.dialect === "messages" && !this.#input.streamed) return null;
      // The client's SDK must not repeat what has been billed, and must not see the provider's words.
      throw new ApiError("upstream_error", "the upstream failed; what was done so far has been billed", {
        retry: false,
        cause: error,
      });
    }
  }

  /** The conversation so far, as the next call sends it. */
  #request(target?: Dialect): MessagesRequest {
    const { rules, request } = this.#input;
    const { toolChoice, maxTokens } = askFor(rules, this.#state);
    const { tool_choice: _choice, ...rest } = request;
    // A Messages upstream cites by itself; any other must write links for a Messages client to get citations.
    const instructed = rules.dialect !== "messages" || (target !== undefined && target !== "messages");
    return {
      ...rest,
      messages: [...this.#messages],
      max_tokens: maxTokens,
      ...(toolChoice === undefined ? {} : { tool_choice: toolChoice }),
      ...(instructed ? { system: withInstruction(request.system) } : {}),
    };
  }

  /** The model's turn and the results it gets for it. */
  #remember(turn: Round["blocks"], results: readonly ToolResultBlock[]): void {
    const messages = [...this.#messages] as unknown as JsonValue[];
    if (turn.length > 0) messages.push({ role: "assistant", content: turn as unknown as JsonValue[] });
    this.#messages = (results.length > 0
      ? addResults(messages, results)
      : messages) as unknown as MessageParam[];
  }

  /** Shows the calls, runs them, shows and returns their results, all in call order. */
  async #runCalls(calls: readonly JudgedCall[]): Promise<readonly ToolResultBlock[]> {
    if (calls.length === 0) return [];
    const { input, deps } = { input: this.#input, deps: this.#deps };
    const resumed = this.#asked === 0;
    for (const { call } of calls) {
      // A resent call stands in the client's conversation already.
      if (resumed) break;
      const { id, name } = call;
      const caller = { type: "direct" } as const;
      await this.#emitBlock({ type: "server_tool_use", id, name, input: call.input ?? {}, caller });
    }
    const waiting = limited(input.parallelCalls, calls, (judged) => this.#runCall(judged));
    const ping = setInterval(() => {
      // A client that has left is found out by whatever is said next.
      this.#ping().catch(() => undefined);
    }, deps.pingMs);
    try {
      const results: ToolResultBlock[] = [];
      for (const [index, { call }] of calls.entries()) {
        const outcome = (await waiting[index]) ?? { kind: "error", code: "unavailable" };
        deps.signal.throwIfAborted();
        this.#tally.tool(call.name, outcome);
        this.#cite(outcome);
        deps.bill.observe(this.#tally.observed);
        const sealer = input.rules.dialect === "messages" ? deps.sealer : null;
        await this.#emitBlock(resultForClient(call, outcome, input.citePages, sealer));
        results.push(resultForModel(call.id, outcome, input.citePages));
      }
      return results;
    } finally {
      clearInterval(ping);
    }
  }

  async #runCall({ call, verdict }: JudgedCall): Promise<ToolOutcome> {
    if (verdict !== "run") return { kind: "error", code: "max_uses_exceeded" };
    if (call.input === null) return { kind: "error", code: "invalid_tool_input" };
    return this.#deps.runTool(call, this.#deps.signal);
  }

  #cite(outcome: ToolOutcome): void {
    if (outcome.kind === "hits") for (const hit of outcome.hits) this.#input.sources.add(hit);
    if (outcome.kind === "page") {
      const { url, title, source } = outcome.page;
      this.#input.sources.add({ url, title, text: source.type === "text" ? source.text : "" });
    }
  }

  #citer(target: { readonly dialect: Dialect }): Citer {
    const { rules, sources } = this.#input;
    const { sealer } = this.#deps;
    if (rules.dialect !== "messages") return { native: () => null, ofText: () => [] };
    return {
      native: (citation) =>
        citation.type === "search_result_location"
          ? searchCitation(citation.source, citation.title, citation.cited_text, sealer)
          : citation,
      ofText: (text) =>
        target.dialect === "messages"
          ? []
          : linkCitations(text, sources).map((link) =>
              searchCitation(link.url, link.title, link.source.text, sealer),
            ),
    };
  }

  async #emitBlock(block: Parameters<typeof wholeBlock>[0]): Promise<void> {
    const events = wholeBlock(block, this.#nextIndex);
    this.#nextIndex += 1;
    await this.#emit(events);
  }

  /** Says events once the message has begun; results that are there before wait for its start. */
  async #emit(events: readonly MessagesEvent[]): Promise<void> {
    if (events.length === 0) return;
    if (this.#started) return this.#deps.emit(events);
    const start = events.findIndex(({ type }) => type === "message_start");
    if (start === -1) {
      this.#before.push(...events.filter(({ type }) => type !== "ping"));
      return;
    }
    this.#started = true;
    const waiting = this.#before.splice(0);
    await this.#deps.emit([...events.slice(start, start + 1), ...waiting, ...events.slice(start + 1)]);
  }

  /** Resent calls run before any model was asked: a stream that has to wait for them begins by itself. */
  async #ping(): Promise<void> {
    if (!this.#started && this.#input.streamed) {
      const message: MessagesResponse = {
        id: this.#deps.newId("msg"),
        type: "message",
        role: "assistant",
        model: this.#input.request.model,
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { input_tokens: 0, output_tokens: 0 },
      };
      await this.#emit([{ type: "message_start", message }]);
    }
    await this.#emit([{ type: "ping" }]);
  }

  /** Charges everything and only then lets the end of the answer go. */
  async #finish(reason: StopReason): Promise<void> {
    const usage = this.#tally.usage;
    await this.#deps.bill.settle({
      ...this.#tally.observed,
      status: this.#failed ? "error" : "ok",
      iterations: this.#asked,
      upstream: this.#upstream,
    });
    this.#settled = true;
    const { sequence, details } = this.#stop;
    await this.#emit([
      {
        type: "message_delta",
        delta: {
          stop_reason: reason,
          stop_sequence: reason === "stop_sequence" ? sequence : null,
          ...(details === undefined ? {} : { stop_details: details }),
        },
        usage,
      },
      { type: "message_stop" },
    ]);
  }

  /** An answer that will not be finished: what was used is charged, a request that brought nothing is free. */
  async #abandon(): Promise<void> {
    if (this.#settled) return;
    const observed = this.#tally.observed;
    const { tokens } = observed;
    const nothing =
      tokens.input + tokens.output + tokens.cacheRead + tokens.cacheWrite5m + tokens.cacheWrite1h === 0;
    if (nothing) return this.#deps.bill.release();
    await this.#deps.bill.settle({
      ...observed,
      status: this.#deps.signal.aborted ? "cancelled" : "error",
      iterations: this.#asked,
      upstream: this.#upstream,
    });
  }
}

/** Adds the instruction to cite, once. */
function withInstruction(system: MessagesRequest["system"]): NonNullable<MessagesRequest["system"]> {
  if (system === undefined || system === "") return INSTRUCTION;
  if (typeof system === "string")
    return system.includes(INSTRUCTION_MARK) ? system : `${system}\n\n${INSTRUCTION}`;
  if (system.some((block) => block.text.includes(INSTRUCTION_MARK))) return system;
  return [...system, { type: "text", text: INSTRUCTION }];
}

/** Runs `work` over all items, at most `most` at a time; the promises stand in item order and never reject unseen. */
function limited<Item, Result>(
  most: number,
  items: readonly Item[],
  work: (item: Item) => Promise<Result>,
): readonly Promise<Result>[] {
  const slots = Array.from({ length: Math.max(1, most) }, () => Promise.resolve());
  return items.map((item, index) => {
    const slot = index % slots.length;
    const result = (slots[slot] ?? Promise.resolve()).then(() => work(item));
    slots[slot] = result.then(
      () => undefined,
      () => undefined,
    );
    return result;
  });
}
