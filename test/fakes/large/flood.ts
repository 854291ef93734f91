/**
 * A tenant's own upstream, in a process of its own, whose streamed answers begin as they should and then bring more of one kind as
 * fast as the network takes it, until nobody wants it any more. It tells its parent its address. Paths: `/KIND` before the dialect's.
 */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setPriority } from "node:os";
import { dialectPath, dialects, type Dialect } from "../../../dataplane/dialects/dialect.ts";

const PACKET_BYTES = 64 * 1024;
/** Below the 8 MiB that one event may have. */
const LARGE_BYTES = 8_000_000;

const named = (type: string, more: object) =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
const chunk = (delta: object) =>
  `data: ${JSON.stringify({
    id: "chatcmpl-1",
    object: "chat.completion.chunk",
    created: 1,
    model: "m",
    choices: [{ index: 0, delta, finish_reason: null }],
  })}\n\n`;

/** What comes before the first delta, and a delta. */
const begun: Readonly<Record<Dialect, string>> = {
  messages:
    named("message_start", {
      message: {
        id: "msg_1",
        type: "message",
        role: "assistant",
        model: "m",
        content: [],
        stop_reason: null,
        usage: {},
      },
    }) + named("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
  chat: chunk({ role: "assistant" }),
  responses: named("response.created", {
    sequence_number: 0,
    response: {
      id: "resp_1",
      object: "response",
      created_at: 1,
      status: "in_progress",
      model: "m",
      output: [],
    },
  }),
};
const delta: Readonly<Record<Dialect, (text: string) => string>> = {
  messages: (text) => named("content_block_delta", { index: 0, delta: { type: "text_delta", text } }),
  chat: (text) => chunk({ content: text }),
  responses: (text) =>
    named("response.output_text.delta", {
      sequence_number: 1,
      item_id: "msg_1",
      output_index: 0,
      content_index: 0,
      delta: text,
    }),
};

const repeated = (text: string, bytes = PACKET_BYTES) => text.repeat(Math.ceil(bytes / text.length));
/** What is sent again and again, by kind. */
const kinds: Readonly<Record<string, (dialect: Dialect) => string>> = {
  deltas: (dialect) => repeated(delta[dialect]("a")),
  "line-feeds": () => repeated("\n"),
  "tiny-chunks": () => "\n",
  "large-events": (dialect) => delta[dialect](repeated("QUJD", LARGE_BYTES)),
  "wide-events": (dialect) =>
    delta[dialect]("a").replace('"type"', `"x":[${repeated("{},", LARGE_BYTES)}{}],"type"`),
};

/** Writes until the connection is closed. */
function flood(response: ServerResponse, bytes: Buffer): void {
  const write = () => {
    while (!response.destroyed && response.write(bytes));
  };
  response.on("drain", write);
  write();
}

const made = new Map<string, Buffer>();
const server = createServer((request, response) => {
  const [, kind = "", ...path] = (request.url ?? "").split("/");
  const dialect = dialects.find((one) => dialectPath[one] === `/${path.join("/")}`);
  const make = kinds[kind];
  request.on("error", () => {});
  response.on("error", () => {});
  request.on("end", () => {
    if (dialect === undefined || make === undefined) return void response.writeHead(404).end();
    const name = `${kind} ${dialect}`;
    if (!made.has(name)) made.set(name, Buffer.from(make(dialect)));
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(begun[dialect]);
    flood(response, made.get(name) as Buffer);
  });
  request.resume();
});
// It has a machine of its own: here it takes what the others leave of the cores.
setPriority(15);
process.on("disconnect", () => process.exit(0));
server.listen(0, "127.0.0.1", () => {
  process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
