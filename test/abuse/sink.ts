/** An upstream that drops what it is sent and answers shortly, in the dialect of the path. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { dialectPath } from "../../dataplane/dialects/dialect.ts";

const usage = { input_tokens: 1, output_tokens: 1 };
/** A short whole answer of each dialect, by path. */
const answers: Readonly<Record<string, string>> = {
  [dialectPath.messages]: JSON.stringify({
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "upstream-model",
    content: [{ type: "text", text: "ok" }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage,
  }),
  [dialectPath.chat]: JSON.stringify({
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 1_790_000_000,
    model: "upstream-model",
    choices: [{ index: 0, message: { role: "assistant", content: "ok" }, finish_reason: "stop" }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  }),
  [dialectPath.responses]: JSON.stringify({
    id: "resp_1",
    object: "response",
    created_at: 1_790_000_000,
    status: "completed",
    model: "upstream-model",
    output: [
      {
        type: "message",
        id: "msg_1",
        status: "completed",
        role: "assistant",
        content: [{ type: "output_text", text: "ok", annotations: [] }],
      },
    ],
    usage: { ...usage, total_tokens: 2 },
  }),
};

export interface Sink {
  /** `http://127.0.0.1:PORT` */
  readonly url: string;
  close(): Promise<void>;
}

export async function startSink(): Promise<Sink> {
  const server = createServer((request, response) => {
    request.on("error", () => {});
    request.on("end", () => {
      const answer = answers[request.url?.split("?", 1)[0] ?? ""];
      response.writeHead(answer === undefined ? 404 : 200, { "content-type": "application/json" });
      response.end(answer ?? "{}");
    });
    request.resume();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, close: () => closeServer(server) };
}

async function closeServer(server: Server): Promise<void> {
  server.closeAllConnections();
  server.close();
  await once(server, "close");
}
