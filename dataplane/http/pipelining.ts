/**
 * How many requests of one connection may wait for their answers. Node hands over all requests of a packet in one turn of the
 * event loop, a thousand of them where they are short; no known client sends a second one before its first is answered.
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
      if (socket.destroyed) return;
      if (before === limits.pipelined) {
        endParsing(socket);
        socket.destroy();
        return;
      }
      ahead.set(socket, before + 1);
      response.once("close", () => ahead.set(socket, (ahead.get(socket) ?? 1) - 1));
    }
    for (const handle of handlers) handle.call(server, request, response);
  });
}

/** Return value of llhttp's `on_headers_complete` where another protocol begins: what follows is not parsed. */
const NOTHING_FOLLOWS = 2;

/**
 * Keeps Node from making a request and a response of everything else in the packet, which takes 20 µs for each of a
 * thousand, although their connection is gone (destroying the socket and pausing the parser do not end its turn). Node has
 * no public way: the parser's `onIncoming`, which it sets for each connection and clears at its end, is replaced.
 */
function endParsing(socket: Socket & { parser?: { onIncoming: unknown } | null }): void {
  if (socket.parser) socket.parser.onIncoming = () => NOTHING_FOLLOWS;
}
