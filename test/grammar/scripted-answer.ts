/**
 * One model answer, said as an upstream of any dialect would say it: whole, and as a stream cut into any deltas.
 * Written apart from the program's own writers, so that a fault there cannot hide here.
 */
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import type { JsonObject, JsonValue } from "../../dataplane/dialects/messages/types.ts";

export type ScriptedBlock =
  | { readonly kind: "thinking"; readonly text: string; readonly opaque: string }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "tool"; readonly id: string; readonly name: string; readonly input: JsonObject };

export interface ScriptedAnswer {
  readonly blocks: readonly ScriptedBlock[];
  readonly stop: "end" | "length" | "tools";
  readonly usage: { readonly input: number; readonly cached: number; readonly output: number };
}

/** Cuts a text into deltas. */
export type Cut = (text: string) => string[];
export const uncut: Cut = (text) => (text === "" ? [] : [text]);

const created = 1_790_000_000;
const sse = (data: JsonObject, event = ""): string =>
  `${event === "" ? "" : `event: ${event}\n`}data: ${JSON.stringify(data)}\n\n`;

export const scriptedBody: Record<Dialect, (answer: ScriptedAnswer) => JsonObject> = {
  messages: (answer) => ({
    id: "msg_upstream",
    type: "message",
    role: "assistant",
    model: "upstream-model",
    content: answer.blocks.map((block): JsonValue => {
      if (block.kind === "thinking")
        return { type: "thinking", thinking: block.text, signature: block.opaque };
      if (block.kind === "text") return { type: "text", text: block.text };
      return { type: "tool_use", id: block.id, name: block.name, input: block.input };
    }),
    stop_reason: messagesStop(answer),
    stop_sequence: null,
    usage: messagesUsage(answer),
  }),
  chat: (answer) => {
    const texts = answer.blocks.filter((block) => block.kind === "text").map((block) => block.text);
    const thinking = answer.blocks.filter((block) => block.kind === "thinking").map((block) => block.text);
    const calls = answer.blocks.filter((block) => block.kind === "tool");
    return {
      id: "chatcmpl-upstream",
      object: "chat.completion",
      created,
      model: "upstream-model",
      choices: [
        {
          index: 0,
          message: {
            role: "assistant",
            content: texts.join(""),
            ...(thinking.length === 0 ? {} : { reasoning_content: thinking.join("") }),
            ...(calls.length === 0
              ? {}
              : {
                  tool_calls: calls.map(({ id, name, input }) => ({
                    id,
                    type: "function",
                    function: { name, arguments: JSON.stringify(input) },
                  })),
                }),
          },
          finish_reason: chatFinish(answer),
        },
      ],
      usage: chatUsage(answer),
    };
  },
  responses: (answer) => responsesBody(answer, answer.stop === "length" ? "incomplete" : "completed"),
};

export const scriptedStream: Record<Dialect, (answer: ScriptedAnswer, cut: Cut) => string[]> = {
  messages: messagesStream,
  chat: chatStream,
  responses: responsesStream,
};

// Messages.

const messagesStop = ({ stop }: ScriptedAnswer) =>
  stop === "tools" ? "tool_use" : stop === "length" ? "max_tokens" : "end_turn";

const messagesUsage = ({ usage }: ScriptedAnswer) => ({
  input_tokens: usage.input - usage.cached,
  cache_read_input_tokens: usage.cached,
  cache_creation_input_tokens: 0,
  output_tokens: usage.output,
});

function messagesStream(answer: ScriptedAnswer, cut: Cut): string[] {
  const events: string[] = [];
  const push = (type: string, fields: JsonObject) => events.push(sse({ type, ...fields }, type));
  const body = scriptedBody.messages(answer);
  push("message_start", {
    message: {
      ...body,
      content: [],
      stop_reason: null,
      usage: { ...messagesUsage(answer), output_tokens: 1 },
    },
  });
  push("ping", {});
  answer.blocks.forEach((block, index) => {
    const start = (content_block: JsonObject) => push("content_block_start", { index, content_block });
    const delta = (delta: JsonObject) => push("content_block_delta", { index, delta });
    if (block.kind === "thinking") {
      start({ type: "thinking", thinking: "", signature: "" });
      for (const thinking of cut(block.text)) delta({ type: "thinking_delta", thinking });
      delta({ type: "signature_delta", signature: block.opaque });
    } else if (block.kind === "text") {
      start({ type: "text", text: "" });
      for (const text of cut(block.text)) delta({ type: "text_delta", text });
    } else {
      start({ type: "tool_use", id: block.id, name: block.name, input: {} });
      for (const partial_json of cut(JSON.stringify(block.input)))
        delta({ type: "input_json_delta", partial_json });
    }
    push("content_block_stop", { index });
  });
  push("message_delta", {
    delta: { stop_reason: messagesStop(answer), stop_sequence: null },
    usage: { output_tokens: answer.usage.output },
  });
  push("message_stop", {});
  return events;
}

// Chat.

const chatFinish = ({ stop }: ScriptedAnswer) =>
  stop === "tools" ? "tool_calls" : stop === "length" ? "length" : "stop";

const chatUsage = ({ usage }: ScriptedAnswer) => ({
  prompt_tokens: usage.input,
  completion_tokens: usage.output,
  total_tokens: usage.input + usage.output,
  prompt_tokens_details: { cached_tokens: usage.cached },
});

function chatStream(answer: ScriptedAnswer, cut: Cut): string[] {
  const chunk = (delta: JsonObject, finish_reason: string | null = null) =>
    sse({
      id: "chatcmpl-upstream",
      object: "chat.completion.chunk",
      created,
      model: "upstream-model",
      choices: [{ index: 0, delta, finish_reason }],
    });
  const events = [chunk({ role: "assistant", content: "" })];
  let index = -1;
  for (const block of answer.blocks) {
    if (block.kind === "thinking")
      events.push(...cut(block.text).map((reasoning_content) => chunk({ reasoning_content })));
    else if (block.kind === "text") events.push(...cut(block.text).map((content) => chunk({ content })));
    else {
      index += 1;
      const head = { id: block.id, type: "function", function: { name: block.name, arguments: "" } };
      const call = (fields: JsonObject) => chunk({ tool_calls: [{ index, ...fields }] });
      events.push(call(head));
      for (const piece of cut(JSON.stringify(block.input)))
        events.push(call({ function: { arguments: piece } }));
    }
  }
  events.push(chunk({}, chatFinish(answer)));
  events.push(
    sse({
      id: "chatcmpl-upstream",
      object: "chat.completion.chunk",
      created,
      model: "upstream-model",
      choices: [],
      usage: chatUsage(answer),
    }),
  );
  events.push("data: [DONE]\n\n");
  return events;
}

// Responses.

function responsesItem(block: ScriptedBlock, index: number): JsonObject {
  if (block.kind === "thinking")
    return {
      id: `rs_${index}`,
      type: "reasoning",
      summary: block.text === "" ? [] : [{ type: "summary_text", text: block.text }],
      encrypted_content: block.opaque,
    };
  if (block.kind === "text")
    return {
      id: `msg_${index}`,
      type: "message",
      status: "completed",
      role: "assistant",
      content: [{ type: "output_text", text: block.text, annotations: [], logprobs: [] }],
    };
  return {
    id: `fc_${index}`,
    type: "function_call",
    status: "completed",
    call_id: block.id,
    name: block.name,
    arguments: JSON.stringify(block.input),
  };
}

function responsesBody(answer: ScriptedAnswer, status: string): JsonObject {
  const isBegun = status === "in_progress";
  return {
    id: "resp_upstream",
    object: "response",
    created_at: created,
    status,
    error: null,
    incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
    model: "upstream-model",
    output: isBegun ? [] : answer.blocks.map(responsesItem),
    usage: isBegun
      ? null
      : {
          input_tokens: answer.usage.input,
          input_tokens_details: { cached_tokens: answer.usage.cached },
          output_tokens: answer.usage.output,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: answer.usage.input + answer.usage.output,
        },
  };
}

function responsesStream(answer: ScriptedAnswer, cut: Cut): string[] {
  const events: string[] = [];
  const push = (type: string, fields: JsonObject) =>
    events.push(sse({ type, sequence_number: events.length, ...fields }, type));
  push("response.created", { response: responsesBody(answer, "in_progress") });
  push("response.in_progress", { response: responsesBody(answer, "in_progress") });
  answer.blocks.forEach((block, output_index) => {
    const item = responsesItem(block, output_index);
    const place = { output_index, item_id: item["id"] ?? "" };
    if (block.kind === "tool") {
      push("response.output_item.added", {
        output_index,
        item: { ...item, arguments: "", status: "in_progress" },
      });
      for (const delta of cut(JSON.stringify(block.input)))
        push("response.function_call_arguments.delta", { ...place, delta });
      push("response.function_call_arguments.done", { ...place, arguments: item["arguments"] ?? "" });
    } else if (block.kind === "text") {
      const part = { type: "output_text", text: "", annotations: [], logprobs: [] };
      push("response.output_item.added", {
        output_index,
        item: { ...item, content: [], status: "in_progress" },
      });
      push("response.content_part.added", { ...place, content_index: 0, part });
      for (const delta of cut(block.text))
        push("response.output_text.delta", { ...place, content_index: 0, delta, logprobs: [] });
      push("response.output_text.done", { ...place, content_index: 0, text: block.text, logprobs: [] });
      push("response.content_part.done", { ...place, content_index: 0, part: { ...part, text: block.text } });
    } else {
      const { encrypted_content: _, ...begun } = item;
      push("response.output_item.added", { output_index, item: { ...begun, summary: [] } });
      if (block.text !== "")
        push("response.reasoning_summary_part.added", {
          ...place,
          summary_index: 0,
          part: { type: "summary_text", text: "" },
        });
      for (const delta of cut(block.text))
        push("response.reasoning_summary_text.delta", { ...place, summary_index: 0, delta });
      if (block.text !== "")
        push("response.reasoning_summary_text.done", { ...place, summary_index: 0, text: block.text });
    }
    push("response.output_item.done", { output_index, item });
  });
  const status = answer.stop === "length" ? "incomplete" : "completed";
  push(`response.${status}`, { response: responsesBody(answer, status) });
  return events;
}
