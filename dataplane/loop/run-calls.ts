/** Runs the server-tool calls of one turn: shows them, keeps the client's connection alive meanwhile, shows the results. */
import type { Sealer } from "../dialects/codecs.ts";
import type { ToolResultBlock } from "../dialects/messages/types.ts";
import { atMost } from "../lib/at-most.ts";
import type { CallCredit } from "./call-credit.ts";
import type { JudgedCall, ToolCall } from "./loop.ts";
import { resultForClient, resultForModel, type ToolOutcome } from "./results.ts";
import type { MessageStream } from "./message-stream.ts";

export interface CallsJob {
  readonly message: MessageStream;
  readonly runTool: (call: ToolCall, signal: AbortSignal) => Promise<ToolOutcome>;
  readonly credit: CallCredit;
  /** Called at once with a call's outcome, to charge it; resolves when the charge is durable. */
  readonly finished: (call: ToolCall, outcome: ToolOutcome) => Promise<void>;
  /** Called with each outcome, in call order, before the client sees it; the client waits until it resolves. */
  readonly brought: (call: ToolCall, outcome: ToolOutcome) => Promise<void>;
  /** Most calls that run at once. */
  readonly parallelCalls: number;
  /** Milliseconds between pings. */
  readonly pingMs: number;
  readonly citePages: boolean;
  /** null: the client's dialect shows no sealed contents. */
  readonly sealer: Sealer | null;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
}

/**
 * @param resent the calls stand in the client's conversation already and are not shown again.
 * @returns the results for the model, in call order.
 * @throws the reason of `signal`.
 */
export async function runCalls(
  job: CallsJob,
  calls: readonly JudgedCall[],
  resent: boolean,
): Promise<readonly ToolResultBlock[]> {
  const { message, signal, citePages, sealer } = job;
  if (calls.length === 0) return [];
  for (const { call } of resent ? [] : calls) {
    const { id, name } = call;
    const caller = { type: "direct" } as const;
    await message.block({ type: "server_tool_use", id, name, input: call.input ?? {}, caller });
  }
  const outcomes = atMost(job.parallelCalls, calls, (judged) => runCall(job, judged));
  const ping = setInterval(() => {
    // The next event finds out that a client has left.
    message.ping().catch(() => undefined);
  }, job.pingMs);
  try {
    const results: ToolResultBlock[] = [];
    for (const [index, { call }] of calls.entries()) {
      const outcome = (await outcomes[index]) ?? { kind: "error", code: "unavailable" };
      signal.throwIfAborted();
      await job.brought(call, outcome);
      await message.block(resultForClient(call, outcome, citePages, sealer));
      results.push(resultForModel(call.id, outcome, citePages));
    }
    return results;
  } finally {
    clearInterval(ping);
  }
}

async function runCall(job: CallsJob, { call, verdict }: JudgedCall): Promise<ToolOutcome> {
  const { runTool, credit, finished, signal } = job;
  signal.throwIfAborted();
  if (verdict !== "run") return { kind: "error", code: "max_uses_exceeded" };
  if (call.input === null) return { kind: "error", code: "invalid_tool_input" };
  if (!(await credit.begin(call.name))) return { kind: "error", code: "unavailable" };
  try {
    signal.throwIfAborted();
    const outcome = await runTool(call, signal);
    // A call that a disconnect cancels is free (rule 3.17), whatever its outcome.
    signal.throwIfAborted();
    await finished(call, outcome);
    return outcome;
  } finally {
    credit.end(call.name);
  }
}
