/** Answers in the Messages dialect, as the official API writes them (dialects.md §C1). */
import {
  argumentsOf,
  pieces,
  stopOf,
  usageOf,
  type Answer,
  type Part,
  type RenderContext,
  type ScriptedUsage,
  type Stop,
  type WireEvent,
} from "./script.ts";

const stopReasons: Record<Stop, string> = {
  end: "end_turn",
  length: "max_tokens",
  tool: "tool_use",
  refusal: "refusal",
  stop_sequence: "stop_sequence",
};

export function wholeMessage(answer: Answer, context: RenderContext): object {
  return {
    ...shell(answer, context),
    content: answer.parts.map((part, index) => block(part, index, context)),
    stop_reason: stopReasons[stopOf(answer)],
    stop_sequence: answer.stopSequence ?? null,
    ...(context.noUsage ? {} : { usage: usage(answer, context) }),
    ...answer.extra,
  };
}

export function messageEvents(answer: Answer, context: RenderContext): WireEvent[] {
  const full = usage(answer, context);
  const events: WireEvent[] = [
    event("message_start", {
      message: {
        ...shell(answer, context),
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { ...full, output_tokens: 1 },
        ...answer.extra,
      },
    }),
    event("ping", {}),
  ];
  answer.parts.forEach((part, index) => {
    const { start, deltas } = streamedBlock(part, index, answer, context);
    events.push(event("content_block_start", { index, content_block: start }));
    for (const delta of deltas) events.push(event("content_block_delta", { index, delta }));
    events.push(event("content_block_stop", { index }));
  });
  events.push(
    event("message_delta", {
      delta: {
        stop_reason: stopReasons[stopOf(answer)],
        stop_sequence: answer.stopSequence ?? null,
        stop_details: null,
        container: null,
      },
      usage: context.noUsage ? { output_tokens: 0 } : full,
    }),
    { ...event("message_stop", {}), terminal: true },
  );
  return events;
}

function event(type: string, fields: object): WireEvent {
  return { event: type, data: JSON.stringify({ type, ...fields }) };
}

function shell(answer: Answer, context: RenderContext) {
  return {
    id: `msg_fake${context.serial}`,
    type: "message",
    role: "assistant",
    model: answer.model ?? context.model,
    stop_details: null,
    container: null,
    diagnostics: null,
  };
}

function usage(answer: Answer, context: RenderContext) {
  const counts = usageOf(answer, context);
  return {
    input_tokens: counts.input,
    cache_creation_input_tokens: counts.cacheWrite5m + counts.cacheWrite1h,
    cache_read_input_tokens: counts.cacheRead,
    cache_creation: {
      ephemeral_5m_input_tokens: counts.cacheWrite5m,
      ephemeral_1h_input_tokens: counts.cacheWrite1h,
    },
    output_tokens: counts.output,
    output_tokens_details: { thinking_tokens: counts.reasoning },
    server_tool_use: null,
    service_tier: answer.tiers?.service_tier ?? "standard",
    inference_geo: answer.tiers?.inference_geo ?? null,
    speed: answer.tiers?.speed ?? null,
    ...(counts.compactions.length > 0 && { iterations: iterations(counts) }),
  };
}

/** The official breakdown: the totals beside it hold its messages, not its compactions. */
function iterations({ compactions, input, output }: Required<ScriptedUsage>) {
  const counted = (type: string, tokens: { readonly input: number; readonly output: number }) => ({
    type,
    input_tokens: tokens.input,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    cache_creation: null,
    output_tokens: tokens.output,
  });
  const message = input + output > 0 ? [counted("message", { input, output })] : [];
  return [...compactions.map((one) => counted("compaction", one)), ...message];
}

function toolId(part: Extract<Part, { type: "tool" }>, index: number, { serial }: RenderContext): string {
  return part.id ?? `toolu_fake${serial}_${index}`;
}

function block(part: Part, index: number, context: RenderContext): object {
  switch (part.type) {
    case "text":
      return { type: "text", text: part.text, citations: part.citations ?? [] };
    case "refusal":
      return { type: "text", text: part.text, citations: [] };
    case "thinking":
      return { type: "thinking", thinking: part.text, signature: part.signature ?? "c2lnbmF0dXJl" };
    case "redacted":
      return { type: "redacted_thinking", data: part.data };
    case "tool":
      return {
        type: "tool_use",
        id: toolId(part, index, context),
        name: part.name,
        input: typeof part.input === "string" ? { raw: part.input } : part.input,
        caller: { type: "direct" },
      };
    case "raw":
      return part.value;
  }
}

function streamedBlock(part: Part, index: number, answer: Answer, context: RenderContext) {
  const whole = block(part, index, context);
  switch (part.type) {
    case "text":
    case "refusal": {
      const citations = part.type === "text" ? (part.citations ?? []) : [];
      return {
        start: { type: "text", text: "", citations: [] },
        deltas: [
          ...pieces(part.text, answer.deltaChars).map((piece) => ({ type: "text_delta", text: piece })),
          ...citations.map((citation) => ({ type: "citations_delta", citation })),
        ],
      };
    }
    case "thinking":
      return {
        start: { type: "thinking", thinking: "", signature: "" },
        deltas: [
          ...pieces(part.text, answer.deltaChars).map((piece) => ({
            type: "thinking_delta",
            thinking: piece,
          })),
          { type: "signature_delta", signature: part.signature ?? "c2lnbmF0dXJl" },
        ],
      };
    case "tool":
      return {
        start: { ...whole, input: {} },
        deltas: ["", ...pieces(argumentsOf(part.input), answer.deltaChars ?? 12)].map((piece) => ({
          type: "input_json_delta",
          partial_json: piece,
        })),
      };
    case "redacted":
    case "raw":
      return { start: whole, deltas: [] };
  }
}
