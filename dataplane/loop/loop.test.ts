import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { loopRules as rules } from "../../test/fakes/loop-rules.ts";
import type { StopReason } from "../dialects/messages/types.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import {
  askFor,
  initialState,
  judgeIteration,
  type LoopRules,
  type LoopState,
  type IterationResult,
} from "./loop.ts";

const calls = (...names: ServerToolName[]) =>
  names.map((name, index) => ({ id: `srvtoolu_${index}`, name, input: { query: "q" } }));
const answer = (over: Partial<IterationResult> = {}): IterationResult => ({
  stopReason: "tool_use",
  calls: calls("web_search"),
  clientCalls: 0,
  strayCalls: 0,
  outputTokens: 10,
  ...over,
});
const after = (iterations: number, over: Partial<LoopState> = {}): LoopState => ({
  ...initialState,
  iterations,
  ...over,
});

describe("end states", () => {
  test.each<[string, Partial<LoopRules>, LoopState, Partial<IterationResult>, unknown]>([
    [
      "an answer without server calls ends with the model's own reason",
      {},
      after(0),
      { calls: [], stopReason: "end_turn" },
      { kind: "stop", reason: "end_turn" },
    ],
    [
      "a stop sequence is kept",
      {},
      after(0),
      { calls: [], stopReason: "stop_sequence" },
      { kind: "stop", reason: "stop_sequence" },
    ],
    [
      "a refusal is kept",
      {},
      after(2),
      { calls: [], stopReason: "refusal" },
      { kind: "stop", reason: "refusal" },
    ],
    ["server calls lead to another iteration", {}, after(0), {}, { kind: "ask", final: false }],
    [
      "calls of tools that nobody has lead to another iteration",
      {},
      after(0),
      { calls: [], strayCalls: 1 },
      { kind: "ask", final: false },
    ],
    [
      "an answer that was cut is over, whatever it calls",
      {},
      after(0),
      { calls: [], strayCalls: 1, stopReason: "max_tokens" },
      { kind: "stop", reason: "max_tokens" },
    ],
    [
      "server calls under a reason of the provider's own lead to another iteration",
      {},
      after(0),
      { stopReason: "tool_calls" as StopReason },
      { kind: "ask", final: false },
    ],
    [
      "calls of the client's under a reason of the provider's own → tool_use",
      {},
      after(0),
      { calls: [], clientCalls: 1, stopReason: "tool_calls" as StopReason },
      { kind: "stop", reason: "tool_use" },
    ],
    ["Messages: 8 iterations reached → pause_turn", {}, after(7), {}, { kind: "stop", reason: "pause_turn" }],
    [
      "Messages: the 8th iteration called only what nobody has, and left nothing to go on from → one final call",
      {},
      after(7),
      { calls: [], strayCalls: 1 },
      { kind: "ask", final: true },
    ],
    [
      "Responses: 8 iterations reached → one final call",
      { dialect: "responses" },
      after(7),
      {},
      { kind: "ask", final: true },
    ],
    [
      "Chat: 8 iterations reached → one final call",
      { dialect: "chat" },
      after(7),
      {},
      { kind: "ask", final: true },
    ],
    [
      "a server tool and a client tool in one turn → tool_use",
      {},
      after(0),
      { clientCalls: 1 },
      { kind: "stop", reason: "tool_use" },
    ],
    [
      "a client tool in the eighth iteration is still tool_use",
      { dialect: "chat" },
      after(7),
      { clientCalls: 1 },
      { kind: "stop", reason: "tool_use" },
    ],
    [
      "a client tool alone → tool_use",
      {},
      after(0),
      { calls: [], clientCalls: 2 },
      { kind: "stop", reason: "tool_use" },
    ],
    [
      "the output limit used up with calls → max_tokens, no further call",
      { dialect: "chat" },
      after(1, { outputTokens: 990 }),
      {},
      { kind: "stop", reason: "max_tokens" },
    ],
    [
      "an iteration cut by its limit ends the loop",
      {},
      after(1),
      { stopReason: "max_tokens" },
      { kind: "stop", reason: "max_tokens" },
    ],
    [
      "Responses: max_tool_calls used up, no client function → final call",
      { dialect: "responses", maxToolCalls: 1 },
      after(0),
      {},
      { kind: "ask", final: true },
    ],
    [
      "Responses: max_tool_calls used up, client function present → the loop continues",
      { dialect: "responses", maxToolCalls: 1, clientFunctions: true },
      after(0),
      {},
      { kind: "ask", final: false },
    ],
  ])("%s", (_name, over, state, got, next) => {
    expect(judgeIteration(rules(over), state, answer(got)).next).toEqual(next);
  });

  test("tool calls in the final answer are dropped and it ends well", () => {
    const round = judgeIteration(rules({ dialect: "responses" }), after(8, { final: true }), answer());
    expect(round).toMatchObject({ calls: [], next: { kind: "stop", reason: "end_turn" } });
  });

  test("a final answer cut by the output limit is still cut", () => {
    const round = judgeIteration(
      rules({ dialect: "chat" }),
      after(8, { final: true }),
      answer({ calls: [], stopReason: "max_tokens" }),
    );
    expect(round.next).toEqual({ kind: "stop", reason: "max_tokens" });
  });
});

describe("limits", () => {
  test("rule 3.5: max_uses counts within a turn, and the calls beyond it are not run", () => {
    const round = judgeIteration(
      rules({ maxUses: { web_search: 2, web_fetch: null, x_search: null } }),
      initialState,
      answer({ calls: calls("web_search", "web_search", "web_search", "web_fetch") }),
    );
    expect(round.calls.map(({ verdict }) => verdict)).toEqual(["run", "run", "max_uses", "run"]);
    expect(round.state.uses).toEqual({ web_search: 2, web_fetch: 1, x_search: 0 });
  });

  test("max_tool_calls counts across all tools and within a turn", () => {
    const round = judgeIteration(
      rules({ dialect: "responses", maxToolCalls: 2, clientFunctions: true }),
      initialState,
      answer({ calls: calls("web_search", "x_search", "web_fetch") }),
    );
    expect(round.calls.map(({ verdict }) => verdict)).toEqual(["run", "run", "max_tool_calls"]);
  });
});

describe("what the next call asks", () => {
  test("a forced choice holds on the first iteration only", () => {
    const forced = rules({
      toolChoice: { type: "tool", name: "web_search", disable_parallel_tool_use: true },
    });
    expect(askFor(forced, initialState).toolChoice).toEqual(forced.toolChoice);
    expect(askFor(forced, after(1)).toolChoice).toEqual({ type: "auto", disable_parallel_tool_use: true });
    expect(askFor(rules({ toolChoice: { type: "any" } }), after(1)).toolChoice).toEqual({ type: "auto" });
    expect(askFor(rules({ toolChoice: { type: "none" } }), after(1)).toolChoice).toEqual({ type: "none" });
  });

  test("the final call has tool_choice none", () => {
    expect(askFor(rules({ dialect: "chat" }), after(8, { final: true })).toolChoice).toEqual({
      type: "none",
    });
  });

  test("rule 3.7: each next iteration gets what is left of the output limit", () => {
    expect(askFor(rules(), after(2, { outputTokens: 400 })).maxTokens).toBe(600);
  });
});

test("whatever a model answers, the loop ends within its iterations and one final call", () => {
  const anyAnswer = fc.record({
    stopReason: fc.constantFrom<StopReason | null>(
      "tool_use",
      "end_turn",
      "pause_turn",
      "max_tokens",
      "refusal",
      null,
    ),
    calls: fc
      .array(fc.constantFrom<ServerToolName>("web_search", "web_fetch", "x_search"), { maxLength: 6 })
      .map((names) => calls(...names)),
    clientCalls: fc.constantFrom(0, 0, 0, 1),
    strayCalls: fc.constantFrom(0, 0, 1),
    outputTokens: fc.nat(50),
  });
  fc.assert(
    fc.property(
      fc.constantFrom("messages" as const, "chat" as const, "responses" as const),
      fc.option(fc.integer({ min: 1, max: 5 })),
      fc.boolean(),
      fc.array(anyAnswer, { minLength: 10, maxLength: 10 }),
      (dialect, maxToolCalls, clientFunctions, answers) => {
        const limits = rules({ dialect, maxToolCalls, clientFunctions });
        let state = initialState;
        let run = 0;
        const asked = answers.findIndex((got) => {
          const round = judgeIteration(limits, state, got);
          run += round.calls.filter(({ verdict }) => verdict === "run").length;
          state = { ...round.state, final: round.next.kind === "ask" && round.next.final };
          return round.next.kind === "stop";
        });
        // Eight iterations and the final call are the first nine answers.
        expect(asked).toBeGreaterThanOrEqual(0);
        expect(asked).toBeLessThanOrEqual(8);
        expect(run).toBeLessThanOrEqual(maxToolCalls ?? Infinity);
      },
    ),
  );
});
