/** Prebuilt bytes: what the load sends and what the raw upstream answers. */
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
 *   open      one Chat event, and then nothing: a stream that stays open
 */
export const modes = ["json", "burst", "paced", "packed", "messages", "whole", "open"] as const;
export type Mode = (typeof modes)[number];

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
  open: Buffer.from(`${streamHead}${httpChunk(chatEvents("open")[1] ?? "")}`),
};

/** Answers that are sent event by event: the head with the first event, the others, the end with the last one. */
export const writes: Readonly<Partial<Record<Mode, readonly Buffer[]>>> = {
  burst: writesOf(chatEvents("burst")),
  paced: writesOf(chatEvents("paced")),
  messages: writesOf(messagesEvents()),
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
}

/** A request of about 1 kB, valid as Chat and as Messages. */
export function requestFor({ path, model, stream }: BenchRequest): Buffer {
  const isChat = path !== "/v1/messages";
  const body = JSON.stringify({
    model,
    stream,
    ...(stream && isChat ? { stream_options: { include_usage: true } } : {}),
    max_tokens: 300,
    messages: [{ role: "user", content: "Please say something. ".repeat(36) }],
  });
  const head = [
    `POST ${path} HTTP/1.1`,
    "host: 127.0.0.1",
    "content-type: application/json",
    `authorization: Bearer ${sampleKeys.inference}`,
    "accept: */*",
    "user-agent: bench",
    `content-length: ${Buffer.byteLength(body)}`,
  ];
  return Buffer.from(`${head.join("\r\n")}\r\n\r\n${body}`);
}
