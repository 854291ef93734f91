/** Prebuilt bytes: what the load sends and what the raw upstream answers. */
import { dialectPath, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";

/**
 * What an upstream may answer. The mode is the first segment of the path and the model's name, public and upstream
 * alike, so that nothing has to be renamed.
 *   json      a whole Chat answer of 1 kB
 *   burst     200 Chat events, each a write and an HTTP chunk of its own, without a pause between them
 *   paced     the same, 2 ms apart
 *   packed    the same, all in one write
 *   messages  200 Messages events as `burst` sends them
 *   whole     a whole Messages answer of 1 kB
 *   responses 200 Responses events as `burst` sends them
 *   response  a whole Responses answer of 1 kB
 *   open      one Chat event, and then nothing: a stream that stays open
 *   open-messages, open-responses   the same in the other dialects
 */
export const modes = [
  "json",
  "burst",
  "paced",
  "packed",
  "messages",
  "whole",
  "responses",
  "response",
  "open",
  "open-messages",
  "open-responses",
] as const;
export type Mode = (typeof modes)[number];

/** The dialect of a mode's answers. */
export function dialectOf(mode: Mode): Dialect {
  if (mode === "messages" || mode === "whole" || mode === "open-messages") return "messages";
  return mode === "responses" || mode === "response" || mode === "open-responses" ? "responses" : "chat";
}

export const isStream = (mode: Mode) => mode !== "json" && mode !== "whole" && mode !== "response";

export const EVENTS = 200;
export const PACE_MS = 2;
const BODY_BYTES = 1024;

const streamHead =
  "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
const httpChunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const END = "0\r\n\r\n";

function wholeAnswer(bodyWith: (text: string) => object): Buffer {
  const empty = Buffer.byteLength(JSON.stringify(bodyWith("")));
  const body = JSON.stringify(bodyWith("word ".repeat(BODY_BYTES).slice(0, BODY_BYTES - empty)));
  return Buffer.from(
    `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
}

const usage = {
  prompt_tokens: 120,
  completion_tokens: EVENTS,
  total_tokens: 120 + EVENTS,
  prompt_tokens_details: { cached_tokens: 0 },
};

function chatEvents(model: Mode): string[] {
  const common = {
    id: "chatcmpl-bench",
    object: "chat.completion.chunk",
    created: 1_790_000_000,
    model,
    system_fingerprint: "fp_bench",
  };
  const choice = (delta: object, finish: string | null = null) =>
    ({
      ...common,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
      usage: null,
    }) as const;
  return [
    choice({ role: "assistant", content: "" }),
    ...Array.from({ length: EVENTS - 4 }, (_, n) => choice({ content: ` word${n % 10}` })),
    choice({}, "stop"),
    { ...common, choices: [], usage },
    "[DONE]",
  ].map((data) => `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
}

function messagesEvents(): string[] {
  const text = (n: number) => ({ type: "text_delta", text: ` word${n % 10}` });
  const message = { id: "msg_bench", type: "message", role: "assistant", model: "messages", content: [] };
  const start = { ...message, stop_reason: null, stop_sequence: null };
  return [
    { type: "message_start", message: { ...start, usage: { input_tokens: 120, output_tokens: 1 } } },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    ...Array.from({ length: EVENTS - 5 }, (_, n) => ({
      type: "content_block_delta",
      index: 0,
      delta: text(n),
    })),
    { type: "content_block_stop", index: 0 },
    {
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: { output_tokens: EVENTS },
    },
    { type: "message_stop" },
  ].map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
}

const response = (model: Mode, text: string, status: "completed" | "in_progress") => {
  const part = { type: "output_text", text, annotations: [], logprobs: [] };
  const message = { id: "msg_bench", type: "message", role: "assistant", status, content: [part] };
  const counts = { input_tokens: 120, output_tokens: EVENTS, total_tokens: 120 + EVENTS };
  return {
    id: "resp_bench",
    object: "response",
    created_at: 1_790_000_000,
    model,
    status,
    error: null,
    incomplete_details: null,
    output: status === "completed" ? [message] : [],
    usage: status === "completed" ? counts : null,
  };
};

function responsesEvents(): string[] {
  const place = { item_id: "msg_bench", output_index: 0, content_index: 0 };
  const words = Array.from({ length: EVENTS - 8 }, (_, n) => ` word${n % 10}`);
  const text = words.join("");
  const part = (said: string) => ({ type: "output_text", text: said, annotations: [], logprobs: [] });
  const item = (status: string, content: object[]) => ({
    output_index: 0,
    item: { id: "msg_bench", type: "message", role: "assistant", status, content },
  });
  return [
    { type: "response.created", response: response("responses", "", "in_progress") },
    { type: "response.in_progress", response: response("responses", "", "in_progress") },
    { type: "response.output_item.added", ...item("in_progress", []) },
    { type: "response.content_part.added", ...place, part: part("") },
    ...words.map((delta) => ({ type: "response.output_text.delta", ...place, delta, logprobs: [] })),
    { type: "response.output_text.done", ...place, text, logprobs: [] },
    { type: "response.content_part.done", ...place, part: part(text) },
    { type: "response.output_item.done", ...item("completed", [part(text)]) },
    { type: "response.completed", response: response("responses", text, "completed") },
  ].map(
    (event, sequence_number) =>
      `event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number })}\n\n`,
  );
}

const streamOf = (events: readonly string[]) =>
  Buffer.from(`${streamHead}${events.map(httpChunk).join("")}${END}`);

/** Whole answers as they stand on the wire. `open` has no end. */
export const answers: Readonly<Record<Mode, Buffer>> = {
  json: wholeAnswer((content) => ({
    id: "chatcmpl-bench",
    object: "chat.completion",
    created: 1_790_000_000,
    model: "json",
    choices: [
      {
        index: 0,
        message: { role: "assistant", content, refusal: null, annotations: [] },
        logprobs: null,
        finish_reason: "stop",
      },
    ],
    usage,
    system_fingerprint: "fp_bench",
  })),
  whole: wholeAnswer((text) => ({
    id: "msg_bench",
    type: "message",
    role: "assistant",
    model: "whole",
    content: [{ type: "text", text }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: { input_tokens: 120, output_tokens: EVENTS },
  })),
  burst: streamOf(chatEvents("burst")),
  paced: streamOf(chatEvents("paced")),
  packed: streamOf(chatEvents("packed")),
  messages: streamOf(messagesEvents()),
  response: wholeAnswer((text) => response("response", text, "completed")),
  responses: streamOf(responsesEvents()),
  open: openingOf(chatEvents("open").slice(1, 2)),
  "open-messages": openingOf(messagesEvents().slice(0, 3)),
  "open-responses": openingOf(responsesEvents().slice(0, 5)),
};

function openingOf(events: readonly string[]): Buffer {
  return Buffer.from(`${streamHead}${httpChunk(events.join(""))}`);
}

/** Answers that are sent event by event: the head with the first event, the others, the end with the last one. */
export const writes: Readonly<Partial<Record<Mode, readonly Buffer[]>>> = {
  burst: writesOf(chatEvents("burst")),
  paced: writesOf(chatEvents("paced")),
  messages: writesOf(messagesEvents()),
  responses: writesOf(responsesEvents()),
};

function writesOf(events: readonly string[]): Buffer[] {
  return events.map((event, n) =>
    Buffer.from(`${n === 0 ? streamHead : ""}${httpChunk(event)}${n === EVENTS - 1 ? END : ""}`),
  );
}

export interface BenchRequest {
  readonly path: string;
  readonly model: string;
  readonly stream: boolean;
  /** The usual one unless it is given. */
  readonly key?: string;
}

/** A request of about 1 kB, valid in the dialect of its path. */
export function requestFor({ path, model, stream, key = sampleKeys.inference }: BenchRequest): Buffer {
  const messages = [{ role: "user", content: "Please say something. ".repeat(36) }];
  const isChat = path !== dialectPath.messages && path !== dialectPath.responses;
  const body = JSON.stringify({
    model,
    stream,
    ...(stream && isChat ? { stream_options: { include_usage: true } } : {}),
    // As Codex asks; other clients have their items kept for an hour.
    ...(path === dialectPath.responses
      ? { store: false, max_output_tokens: 300, input: messages }
      : { max_tokens: 300, messages }),
  });
  const head = [
    `POST ${path} HTTP/1.1`,
    "host: 127.0.0.1",
    "content-type: application/json",
    `authorization: Bearer ${key}`,
    "accept: */*",
    "user-agent: bench",
    `content-length: ${Buffer.byteLength(body)}`,
  ];
  return Buffer.from(`${head.join("\r\n")}\r\n\r\n${body}`);
}
