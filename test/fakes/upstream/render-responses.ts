/** Answers in the Responses dialect, as the official API writes them (dialects.md §C3). */
import {
  argumentsOf,
  pieces,
  stopOf,
  usageOf,
  type Answer,
  type Part,
  type RenderContext,
  type WireEvent,
} from "./script.ts";

export function wholeResponse(answer: Answer, context: RenderContext): object {
  const incomplete = stopOf(answer) === "length";
  return {
    ...shell(answer, context),
    status: incomplete ? "incomplete" : "completed",
    completed_at: incomplete ? null : context.createdAt,
    incomplete_details: incomplete ? { reason: "max_output_tokens" } : null,
    output: items(answer, context).map(({ item }) => item),
    ...(context.noUsage ? { usage: null } : { usage: usage(answer, context) }),
  };
}

export function responseEvents(answer: Answer, context: RenderContext): WireEvent[] {
  const events: WireEvent[] = [];
  const push = (type: string, fields: object, terminal = false) =>
    events.push({
      event: type,
      data: JSON.stringify({ type, sequence_number: events.length, ...fields }),
      terminal,
    });
  const opening = { ...shell(answer, context), status: "in_progress", output: [], usage: null };
  push("response.created", { response: opening });
  push("response.in_progress", { response: opening });
  items(answer, context).forEach(({ item, opened, part }, output_index) => {
    push("response.output_item.added", { output_index, item: opened });
    body(part, answer, (type, fields) => push(type, { item_id: item.id, output_index, ...fields }));
    push("response.output_item.done", { output_index, item });
  });
  const final = wholeResponse(answer, context);
  push(stopOf(answer) === "length" ? "response.incomplete" : "response.completed", { response: final }, true);
  return events;
}

interface Item {
  readonly part: Part;
  /** As it stands when it is finished. */
  readonly item: Readonly<Record<string, unknown>>;
  /** As it stands in `output_item.added`. */
  readonly opened: object;
}

function items(answer: Answer, context: RenderContext): Item[] {
  return answer.parts.map((part, index): Item => {
    const id = (prefix: string) => `${prefix}_fake${context.serial}_${index}`;
    switch (part.type) {
      case "text": {
        const message = { id: id("msg"), type: "message", role: "assistant" };
        const content = {
          type: "output_text",
          text: part.text,
          annotations: part.citations ?? [],
          logprobs: [],
        };
        return {
          part,
          item: { ...message, status: "completed", content: [content] },
          opened: { ...message, status: "in_progress", content: [] },
        };
      }
      case "refusal": {
        const message = { id: id("msg"), type: "message", role: "assistant" };
        return {
          part,
          item: { ...message, status: "completed", content: [{ type: "refusal", refusal: part.text }] },
          opened: { ...message, status: "in_progress", content: [] },
        };
      }
      case "thinking": {
        const item = {
          id: id("rs"),
          type: "reasoning",
          summary: [{ type: "summary_text", text: part.text }],
          ...(context.includeReasoning && part.signature !== undefined
            ? { encrypted_content: part.signature }
            : {}),
        };
        return { part, item, opened: { ...item, summary: [] } };
      }
      case "redacted": {
        const content = context.includeReasoning ? { encrypted_content: part.data } : {};
        const item = { id: id("rs"), type: "reasoning", summary: [], ...content };
        return { part, item, opened: item };
      }
      case "tool": {
        const call = {
          id: id("fc"),
          type: "function_call",
          call_id: part.id ?? id("call"),
          name: part.name,
        };
        return {
          part,
          item: { ...call, status: "completed", arguments: argumentsOf(part.input) },
          opened: { ...call, status: "in_progress", arguments: "" },
        };
      }
      case "raw":
        return { part, item: { ...part.value }, opened: { ...part.value, status: "in_progress" } };
    }
  });
}

/** The events between an item's `added` and `done`. */
function body(part: Part, answer: Answer, push: (type: string, fields: object) => void): void {
  switch (part.type) {
    case "text": {
      const annotations = part.citations ?? [];
      const content = (text: string, list: readonly object[]) => ({
        type: "output_text",
        text,
        annotations: list,
        logprobs: [],
      });
      push("response.content_part.added", { content_index: 0, part: content("", []) });
      for (const delta of pieces(part.text, answer.deltaChars)) {
        push("response.output_text.delta", { content_index: 0, delta, logprobs: [] });
      }
      annotations.forEach((annotation, annotation_index) =>
        push("response.output_text.annotation.added", { content_index: 0, annotation_index, annotation }),
      );
      push("response.output_text.done", { content_index: 0, text: part.text, logprobs: [] });
      push("response.content_part.done", { content_index: 0, part: content(part.text, annotations) });
      return;
    }
    case "refusal": {
      const content = (refusal: string) => ({ type: "refusal", refusal });
      push("response.content_part.added", { content_index: 0, part: content("") });
      for (const delta of pieces(part.text, answer.deltaChars)) {
        push("response.refusal.delta", { content_index: 0, delta });
      }
      push("response.refusal.done", { content_index: 0, refusal: part.text });
      push("response.content_part.done", { content_index: 0, part: content(part.text) });
      return;
    }
    case "thinking": {
      const summary = (text: string) => ({ type: "summary_text", text });
      push("response.reasoning_summary_part.added", { summary_index: 0, part: summary("") });
      for (const delta of pieces(part.text, answer.deltaChars)) {
        push("response.reasoning_summary_text.delta", { summary_index: 0, delta });
      }
      push("response.reasoning_summary_text.done", { summary_index: 0, text: part.text });
      push("response.reasoning_summary_part.done", { summary_index: 0, part: summary(part.text) });
      return;
    }
    case "tool": {
      for (const delta of pieces(argumentsOf(part.input), answer.deltaChars ?? 12)) {
        push("response.function_call_arguments.delta", { delta });
      }
      push("response.function_call_arguments.done", {
        name: part.name,
        arguments: argumentsOf(part.input),
      });
      return;
    }
    case "redacted":
    case "raw":
      return;
  }
}

function shell(answer: Answer, context: RenderContext) {
  return {
    id: `resp_fake${context.serial}`,
    object: "response",
    created_at: context.createdAt,
    completed_at: null as number | null,
    status: "completed",
    access_programs: null,
    background: false,
    conversation: null,
    error: null,
    frequency_penalty: 0,
    incomplete_details: null,
    instructions: null,
    max_output_tokens: null,
    max_tool_calls: null,
    metadata: {},
    model: answer.model ?? context.model,
    moderation: null,
    output: [] as unknown[],
    parallel_tool_calls: true,
    presence_penalty: 0,
    previous_response_id: null,
    prompt: null,
    prompt_cache_key: null,
    prompt_cache_retention: null,
    reasoning: { effort: null, summary: null },
    safety_identifier: null,
    service_tier: answer.tiers?.service_tier ?? "default",
    store: false,
    temperature: 1,
    text: { format: context.textFormat },
    tool_choice: "auto",
    tools: [],
    top_logprobs: 0,
    top_p: 1,
    truncation: "disabled",
    user: null,
    ...answer.extra,
  };
}

function usage(answer: Answer, context: RenderContext) {
  const counts = usageOf(answer, context);
  const input = counts.input + counts.cacheRead + counts.cacheWrite5m + counts.cacheWrite1h;
  return {
    input_tokens: input,
    input_tokens_details: {
      cached_tokens: counts.cacheRead,
      cache_write_tokens: counts.cacheWrite5m + counts.cacheWrite1h,
    },
    output_tokens: counts.output,
    output_tokens_details: { reasoning_tokens: counts.reasoning },
    total_tokens: input + counts.output,
  };
}
