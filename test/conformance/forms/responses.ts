/** Responses. */
import { dialectPath } from "../../../dataplane/dialects/dialect.ts";
import { responsesFaults } from "../../grammar/responses.ts";
import { fieldsOf, json as parsed, type Fields } from "../../grammar/sse.ts";
import { json, MAX_TOKENS, type Form, type Wish } from "./form.ts";
import { count, openaiErrorType, openaiQuestion } from "./openai.ts";

const turn = ({ prompt }: Wish): object => ({ role: "user", content: prompt });

function body(wish: Wish): Fields {
  const { tools, choice, parallel, stream, maxTokens = MAX_TOKENS } = wish;
  return {
    input: [turn(wish)],
    max_output_tokens: maxTokens,
    store: false,
    ...(tools === undefined
      ? {}
      : { tools: tools.map((tool) => ({ type: "function", strict: false, ...tool })) }),
    ...(choice === undefined ? {} : { tool_choice: choice }),
    ...(parallel === undefined ? {} : { parallel_tool_calls: parallel }),
    ...(stream === undefined ? {} : { stream }),
  };
}

const itemsOf = (answer: Fields): Fields[] =>
  Array.isArray(answer["output"]) ? answer["output"].map(fieldsOf) : [];

function stopOf(answer: Fields): "end" | "length" | "tool" | "other" {
  if (answer["status"] === "completed")
    return itemsOf(answer).some(({ type }) => type === "function_call") ? "tool" : "end";
  return fieldsOf(answer["incomplete_details"])["reason"] === "max_output_tokens" ? "length" : "other";
}

export const responses: Form = {
  dialect: "responses",
  path: dialectPath.responses,
  requestIdHeader: "x-request-id",
  required: "input",
  question: (content, more) => openaiQuestion(dialectPath.responses, json(content), more),
  body,
  said: (answer) => {
    const items = itemsOf(answer);
    const usage = fieldsOf(answer["usage"]);
    return {
      text: items
        .filter(({ type }) => type === "message")
        .flatMap(({ content }) => (Array.isArray(content) ? content.map(fieldsOf) : []))
        .filter(({ type }) => type === "output_text")
        .map(({ text }) => String(text))
        .join(""),
      calls: items
        .filter(({ type }) => type === "function_call")
        .map((item) => ({
          id: String(item["call_id"]),
          name: String(item["name"]),
          input: parsed(item["arguments"]),
        })),
      stop: stopOf(answer),
      usage: !("input_tokens" in usage)
        ? null
        : {
            input: count(usage["input_tokens"]),
            output: count(usage["output_tokens"]),
            cacheRead: count(fieldsOf(usage["input_tokens_details"])["cached_tokens"] ?? 0),
            total: count(usage["total_tokens"]),
          },
    };
  },
  followUp: (wish, answer, result) => {
    const items = itemsOf(answer);
    const results = items
      .filter(({ type }) => type === "function_call")
      .map((item) => ({ type: "function_call_output", call_id: item["call_id"], output: result }));
    // Reasoning that was not asked for in its sealed form cannot be sent back without a store.
    const back = items.filter(({ type }) => type !== "reasoning");
    return { ...body(wish), input: [turn(wish), ...back, ...results] };
  },
  orderFaults: (stream) => responsesFaults(stream),
  houseRules: [/^unknown event/, / in a reasoning$/, /^a search /, /^delta without logprobs/],
  errorType: openaiErrorType,
};
