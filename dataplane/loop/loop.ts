/**
 * The loop machine of server tools: what an iteration's answer leads to. Pure; one machine for the three
 * dialects, streamed or not, live or in a batch (design.md §4.5; service.md "How the loop ends",
 * rules 3.5–3.8). `run.ts` does what is decided here.
 *
 *            ask ──> answer ──┬── no call that is answered here ────────────> stop (the model's own reason)
 *             ^               └── server calls: run them ──┬── a client tool was called too ──> stop tool_use
 *             │                                            ├── output limit used up ─────────> stop max_tokens
 *             │                                            ├── Messages: 8th iteration ──────> stop pause_turn
 *             │                                            ├── else: 8th iteration, or
 *             │                                            │   max_tool_calls used up ───────> ask once more,
 *             │                                            │                                   tools off (final)
 *             └────────────────────────────────────────────┴── otherwise
 *
 * A call of a tool that nobody has, where the client has none of its own, is answered here too: with an error. After an 8th
 * iteration without any other call, Messages asks once more as well.
 *
 * The runner adds two causes of its own before it asks again: credit that does not cover the next iteration
 * (stop pause_turn) and an upstream that fails (an error, or pause_turn for a whole Messages answer).
 */
import type { Dialect } from "../dialects/dialect.ts";
import { endsEarly } from "../dialects/messages/read-response.ts";
import type { JsonObject, StopReason, ToolChoice } from "../dialects/messages/types.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";

/** What the request and its policy allow; fixed for the whole loop. */
export interface LoopRules {
  readonly dialect: Dialect;
  /** Iterations with tools (8); Responses and Chat add one final call without. */
  readonly iterations: number;
  /** Messages `max_uses` of each tool; null: no limit. */
  readonly maxUses: Readonly<Record<ServerToolName, number | null>>;
  /** Responses `max_tool_calls` over all tools; null: no limit. */
  readonly maxToolCalls: number | null;
  /** Whether the request declares function tools of its own. */
  readonly clientFunctions: boolean;
  /** Total over all iterations. */
  readonly maxOutputTokens: number;
  /** The client's choice, a forced server tool already written as that tool's name; absent: auto. */
  readonly toolChoice: ToolChoice | undefined;
}

export interface LoopState {
  /** Iterations asked so far, the final call not counted. */
  readonly iterations: number;
  /** Calls run so far, of each tool. */
  readonly uses: Readonly<Record<ServerToolName, number>>;
  readonly outputTokens: number;
  /** Whether the call under way is the final one. */
  readonly final: boolean;
}

export const initialState: LoopState = {
  iterations: 0,
  uses: { web_search: 0, web_fetch: 0, x_search: 0 },
  outputTokens: 0,
  final: false,
};

/** A model's call of a server tool. */
export interface ToolCall {
  /** `srvtoolu_…` */
  readonly id: string;
  readonly name: ServerToolName;
  /** null: the model's arguments were no JSON object. */
  readonly input: JsonObject | null;
}

/** Result of one iteration. */
export interface IterationResult {
  readonly stopReason: StopReason | null;
  readonly calls: readonly ToolCall[];
  /** How many of the client's own functions were called. */
  readonly clientCalls: number;
  /** How many calls there were of tools that nobody has. */
  readonly strayCalls: number;
  readonly outputTokens: number;
}

export interface JudgedCall {
  readonly call: ToolCall;
  /** `run`, or why not: its `max_uses` or the request's `max_tool_calls` is used up. */
  readonly verdict: "run" | "max_uses" | "max_tool_calls";
}

export type Next =
  | { readonly kind: "ask"; readonly final: boolean }
  | { readonly kind: "stop"; readonly reason: StopReason };

export interface Judgement {
  readonly state: LoopState;
  /** In call order; results stand in the same order. */
  readonly calls: readonly JudgedCall[];
  /** What follows once the calls have run. */
  readonly next: Next;
}

/** What the next upstream call must ask for. */
export interface Ask {
  readonly toolChoice: ToolChoice | undefined;
  /** What is left of the output limit. */
  readonly maxTokens: number;
}

/** Parameters of the call that `state` is about to make. */
export function askFor(rules: LoopRules, state: LoopState): Ask {
  const maxTokens = Math.max(1, rules.maxOutputTokens - state.outputTokens);
  if (state.final) return { toolChoice: { type: "none" }, maxTokens };
  return { toolChoice: state.iterations === 0 ? rules.toolChoice : relaxed(rules.toolChoice), maxTokens };
}

/** A forced choice holds on the first iteration only; later ones are free, or the loop would never end. */
function relaxed(choice: ToolChoice | undefined): ToolChoice | undefined {
  if (choice === undefined || choice.type === "none" || choice.type === "auto") return choice;
  return choice.disable_parallel_tool_use === true
    ? { type: "auto", disable_parallel_tool_use: true }
    : { type: "auto" };
}

/** Judges one iteration's answer. */
export function judgeIteration(rules: LoopRules, before: LoopState, answer: IterationResult): Judgement {
  const asked: LoopState = {
    ...before,
    iterations: before.final ? before.iterations : before.iterations + 1,
    outputTokens: before.outputTokens + answer.outputTokens,
  };
  if (before.final) return stop(asked, answer.stopReason === "tool_use" ? "end_turn" : ended(answer));
  // An answer that was cut or refused: its calls are not run.
  const answered = answer.calls.length + answer.strayCalls;
  if (answered === 0 || endsEarly(answer.stopReason)) return stop(asked, ended(answer));

  const { state, calls } = admitCalls(rules, asked, answer.calls);
  return { state, calls, next: afterCalls(rules, state, answer) };
}

const stop = (state: LoopState, reason: StopReason): Judgement => ({
  state,
  calls: [],
  next: { kind: "stop", reason },
});

function ended(answer: IterationResult): StopReason {
  if (answer.clientCalls > 0 && !endsEarly(answer.stopReason)) return "tool_use";
  // A lone `tool_use`, without any call, means nothing to a client.
  return answer.stopReason === null || answer.stopReason === "tool_use" ? "end_turn" : answer.stopReason;
}

/** Calls of one turn count against the limits within the turn too (rule 3.5); only calls that run are counted. */
export function admitCalls(
  rules: LoopRules,
  before: LoopState,
  calls: readonly ToolCall[],
): { readonly state: LoopState; readonly calls: readonly JudgedCall[] } {
  const uses = { ...before.uses };
  const judged = calls.map((call): JudgedCall => {
    if (isUsedUp(rules, uses)) return { call, verdict: "max_tool_calls" };
    const most = rules.maxUses[call.name];
    if (most !== null && uses[call.name] >= most) return { call, verdict: "max_uses" };
    uses[call.name] += 1;
    return { call, verdict: "run" };
  });
  return { state: { ...before, uses }, calls: judged };
}

function afterCalls(rules: LoopRules, state: LoopState, answer: IterationResult): Next {
  if (answer.clientCalls > 0) return { kind: "stop", reason: "tool_use" };
  if (state.outputTokens >= rules.maxOutputTokens) return { kind: "stop", reason: "max_tokens" };
  if (state.iterations >= rules.iterations) {
    // A pause behind nothing but stray calls would leave a Messages client no result to go on from.
    return rules.dialect === "messages" && answer.calls.length > 0
      ? { kind: "stop", reason: "pause_turn" }
      : { kind: "ask", final: true };
  }
  return { kind: "ask", final: isUsedUp(rules, state.uses) && !rules.clientFunctions };
}

/** Whether `max_tool_calls` lets no further call of any tool be run. */
const isUsedUp = ({ maxToolCalls }: LoopRules, uses: LoopState["uses"]): boolean =>
  maxToolCalls !== null && Object.values(uses).reduce((sum, count) => sum + count, 0) >= maxToolCalls;
