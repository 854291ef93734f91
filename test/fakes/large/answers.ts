/** Large answers, whole and streamed, as an upstream may send them. */
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";

const MIB = 1024 * 1024;

/** @param text JSON of the text. @param logprobs JSON of its tokens. @param more further fields, each with its comma before it. */
type Whole = (text: string, logprobs?: string, more?: string) => string;

const wholes: Record<Dialect, Whole> = {
  messages: (text, _logprobs, more = "") =>
    `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":${text}}],` +
    `"stop_reason":"end_turn","stop_sequence":null${more},"usage":{"input_tokens":3,"output_tokens":4}}`,
  chat: (text, logprobs = "[]", more = "") =>
    `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",` +
    `"content":${text}},"logprobs":{"content":${logprobs}},"finish_reason":"stop"}]${more},` +
    `"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`,
  responses: (text, logprobs = "[]", more = "") =>
    `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m","output":[{"type":"message",` +
    `"id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":${text},` +
    `"annotations":[],"logprobs":${logprobs}}]}]${more},"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}}`,
};

const listOf = (item: string, bytes: number): string =>
  `[${Array.from({ length: Math.floor(bytes / (item.length + 1)) }, () => item).join(",")}]`;
const one = { token: " word", logprob: -0.1234567, bytes: [32, 119, 111, 114, 100] };
const token = JSON.stringify({ ...one, top_logprobs: Array.from({ length: 20 }, () => one) });
const overflow = "maximum context length is 1 tokens ";

const shapes: Record<string, (whole: Whole) => string> = {
  "a short text": (whole) => whole('"words"'),
  "22 MB of log probabilities": (whole) => whole('"words"', listOf(token, 22e6)),
  "a text of 60 MiB": (whole) => whole(`"${"a word ".repeat((60 * MIB) / 7)}"`),
  "60 MiB of objects": (whole) => whole('"words"', "[]", `,"more":${listOf('{"a":1}', 60 * MIB)}`),
  "as many objects as may be": (whole) =>
    whole('"words"', "[]", `,"more":${listOf('{"abcdefghij":1234567}', 1_990_000 * 23)}`),
  "an error of 60 MiB": () =>
    `{"error":{"type":"invalid_request_error","message":"${overflow.repeat((60 * MIB) / overflow.length)}"}}`,
  "60 MiB that end in the middle": (whole) => whole('"words"', listOf(token, 60 * MIB)).slice(0, -20),
  "60 MiB of brackets": () => "[".repeat(60 * MIB),
};

/** The shapes of those that are large. */
export const answerShapes: readonly string[] = Object.keys(shapes).slice(1);

export function answerOf(dialect: Dialect, shape: string): Buffer {
  const write = shapes[shape];
  if (write === undefined) throw new Error(`no answer of the shape ${shape}`);
  return Buffer.from(write(wholes[dialect]));
}

/** Below the 8 MiB that one event may have. */
const EVENT_BYTES = 8_000_000;
const chunk = (more: string, delta = "") =>
  `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a"` +
  `${delta}},"finish_reason":null${more}}]}`;
const numbers = `[${"0,".repeat(EVENT_BYTES / 2)}0]`;

/** The data of a Chat stream's event that is very large. */
const events: Record<string, () => string> = {
  "an event of log probabilities": () => chunk(`,"logprobs":{"content":${listOf(token, EVENT_BYTES)}}`),
  "an event of numbers": () => chunk("").replace("{", `{"x":${numbers},`),
  "an event of tool calls": () => chunk("", `,"tool_calls":${listOf("{}", EVENT_BYTES)}`),
  "an event of numbers that is no JSON": () => chunk("").replace("{", `{"x":${numbers}`),
  "an event of lines": () => chunk("").replace("{", `{"x":[${"0,\ndata:".repeat(EVENT_BYTES / 8)}0],`),
};

/** The shapes of streamed answers. */
export const eventShapes: readonly string[] = Object.keys(events);

/** Writes a Chat upstream's stream with such an event. */
export function streamOf(shape: string): Buffer {
  const large = events[shape];
  if (large === undefined) throw new Error(`no event of the shape ${shape}`);
  const end = chunk("").replace('"finish_reason":null', '"finish_reason":"stop"');
  return Buffer.from([chunk(""), large(), end, "[DONE]"].map((data) => `data: ${data}\n\n`).join(""));
}
