/** Chat Completions. */
import { dialectPath } from "../../../dataplane/dialects/dialect.ts";
import { chatFaults } from "../../grammar/chat.ts";
import { fieldsOf, isText, json as parsed, type Fields } from "../../grammar/sse.ts";
import { json, MAX_TOKENS, type Form, type Wish } from "./form.ts";
import { count, openaiErrorType, openaiQuestion } from "./openai.ts";

const stops = { stop: "end", length: "length", tool_calls: "tool" } as const;

const messages = ({ prompt }: Wish): object[] => [{ role: "user", content: prompt }];

function body(wish: Wish): Fields {
  const { tools, choice, stop, stream, parallel, maxTokens = MAX_TOKENS } = wish;
  return {
    messages: messages(wish),
    max_completion_tokens: maxTokens,
    ...(tools === undefined ? {} : { tools: tools.map((tool) => ({ type: "function", function: tool })) }),
    ...(choice === undefined ? {} : { tool_choice: choice }),
    ...(parallel === undefined ? {} : { parallel_tool_calls: parallel }),
    ...(stop === undefined ? {} : { stop: [stop] }),
    ...(stream === true ? { stream, stream_options: { include_usage: true } } : {}),
  };
}

const messageOf = (answer: Fields) => {
  const [choice] = Array.isArray(answer["choices"]) ? answer["choices"] : [];
  return { choice: fieldsOf(choice), message: fieldsOf(fieldsOf(choice)["message"]) };
};

export const chat: Form = {
  dialect: "chat",
  path: dialectPath.chat,
  requestIdHeader: "x-request-id",
  required: "messages",
  question: (content, more) => openaiQuestion(dialectPath.chat, json(content), more),
  body,
  said: (answer) => {
    const { choice, message } = messageOf(answer);
    const usage = fieldsOf(answer["usage"]);
    const calls = Array.isArray(message["tool_calls"]) ? message["tool_calls"].map(fieldsOf) : [];
    return {
      text: isText(message["content"]) ? message["content"] : "",
      calls: calls.map((call) => ({
        id: String(call["id"]),
        name: String(fieldsOf(call["function"])["name"]),
        input: parsed(fieldsOf(call["function"])["arguments"]),
      })),
      stop: stops[choice["finish_reason"] as keyof typeof stops] ?? "other",
      usage: !("prompt_tokens" in usage)
        ? null
        : {
            input: count(usage["prompt_tokens"]),
            output: count(usage["completion_tokens"]),
            cacheRead: count(fieldsOf(usage["prompt_tokens_details"])["cached_tokens"] ?? 0),
            total: count(usage["total_tokens"]),
          },
    };
  },
  followUp: (wish, answer, result) => {
    const { message } = messageOf(answer);
    const calls = Array.isArray(message["tool_calls"]) ? message["tool_calls"].map(fieldsOf) : [];
    const results = calls.map((call) => ({ role: "tool", tool_call_id: call["id"], content: result }));
    const turn = { role: "assistant", content: message["content"] ?? null, tool_calls: calls };
    return { ...body(wish), messages: [...messages(wish), turn, ...results] };
  },
  orderFaults: (stream, { includeUsage = true } = {}) => chatFaults(stream, { includeUsage }),
  houseRules: [
    /^an empty delta/,
    /^a choice without logprobs/,
    /^the role comes again/,
    /^the last chunk has a delta/,
    /^tool calls interleave/,
    /^a tool call delta without arguments/,
  ],
  errorType: openaiErrorType,
};
