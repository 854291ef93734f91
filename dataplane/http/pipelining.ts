/**
 * How many requests of one connection may wait for their answers. Node hands over all requests of a packet in one turn
 * of the event loop, a thousand of them where they are short; no client that is known sends a second one unanswered.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { isAnswering } from "./bare-socket.ts";
import { limits } from "./limits.ts";

/** Closes a connection that sends more than `limits.pipelined` requests ahead of their answers. */
export function boundPipelining(server: Server): void {
  const handlers = server.listeners("request");
  server.removeAllListeners("request");
  /** Requests that came while another one of their connection was being answered. */
  const ahead = new WeakMap<Socket, number>();
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    if (!isAnswering(socket, response)) {
      const before = ahead.get(socket) ?? 0;
      // What else came in the same packet is still handed over.
      if (socket.destroyed) return;
      if (before === limits.pipelined) {
        socket.destroy();
        return;
      }
      ahead.set(socket, before + 1);
      response.once("close", () => ahead.set(socket, (ahead.get(socket) ?? 1) - 1));
    }
    for (const handle of handlers) handle.call(server, request, response);
  });
}
