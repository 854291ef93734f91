/** Messages. */
import { dialectPath } from "../../../dataplane/dialects/dialect.ts";
import { messagesFaults } from "../../grammar/messages.ts";
import { fieldsOf, type Fields } from "../../grammar/sse.ts";
import { json, MAX_TOKENS, type Form, type Wish } from "./form.ts";
import { count } from "./openai.ts";

const stops = {
  end_turn: "end",
  max_tokens: "length",
  tool_use: "tool",
  stop_sequence: "stop sequence",
} as const;
const choices = { auto: "auto", required: "any", none: "none" } as const;
const errorTypes: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  404: "not_found_error",
};

const turn = ({ prompt }: Wish): object => ({ role: "user", content: prompt });

function body(wish: Wish): Fields {
  const { tools, choice, parallel, stop, stream, maxTokens = MAX_TOKENS } = wish;
  const chosen = choice ?? (parallel === undefined ? undefined : "auto");
  return {
    messages: [turn(wish)],
    max_tokens: maxTokens,
    ...(tools === undefined
      ? {}
      : { tools: tools.map(({ parameters, ...tool }) => ({ ...tool, input_schema: parameters })) }),
    ...(chosen === undefined
      ? {}
      : {
          tool_choice: {
            type: choices[chosen],
            ...(parallel === undefined ? {} : { disable_parallel_tool_use: true }),
          },
        }),
    ...(stop === undefined ? {} : { stop_sequences: [stop] }),
    ...(stream === undefined ? {} : { stream }),
  };
}

const blocksOf = (answer: Fields): Fields[] =>
  Array.isArray(answer["content"]) ? answer["content"].map(fieldsOf) : [];

export const messages: Form = {
  dialect: "messages",
  path: dialectPath.messages,
  requestIdHeader: "request-id",
  required: "messages",
  question: (content, more = {}) => ({
    method: "POST",
    path: dialectPath.messages,
    body: json(content),
    ...more,
    headers: {
      "x-api-key": "{key}",
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
      ...more.headers,
    },
  }),
  body,
  said: (answer) => {
    const blocks = blocksOf(answer);
    const usage = fieldsOf(answer["usage"]);
    const cacheRead = count(usage["cache_read_input_tokens"] ?? 0);
    return {
      text: blocks
        .filter(({ type }) => type === "text")
        .map(({ text }) => String(text))
        .join(""),
      calls: blocks
        .filter(({ type }) => type === "tool_use")
        .map(({ id, name, input }) => ({ id: String(id), name: String(name), input })),
      stop: stops[answer["stop_reason"] as keyof typeof stops] ?? "other",
      usage: !("input_tokens" in usage)
        ? null
        : {
            input:
              count(usage["input_tokens"]) + cacheRead + count(usage["cache_creation_input_tokens"] ?? 0),
            output: count(usage["output_tokens"]),
            cacheRead,
            total: null,
          },
    };
  },
  followUp: (wish, answer, result) => {
    const results = blocksOf(answer)
      .filter(({ type }) => type === "tool_use")
      .map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: result }));
    return {
      ...body(wish),
      messages: [
        turn(wish),
        { role: "assistant", content: answer["content"] },
        { role: "user", content: results },
      ],
    };
  },
  orderFaults: (stream) => messagesFaults(stream),
  houseRules: [
    /^ping before message_start/,
    /^a text block does not start empty/,
    /^a delta after the signature/,
    /^signature_delta without signature/,
  ],
  errorType: (status) => errorTypes[status] ?? null,
};
