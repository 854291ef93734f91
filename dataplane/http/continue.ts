/** `Expect: 100-continue`: a client that asks first sends its body only when it will be read (RFC 9110 §10.1.1). */
import type { IncomingMessage, Server, ServerResponse } from "node:http";

/** Requests that wait for `100 Continue` before they send their bodies. */
const waiting = new WeakMap<IncomingMessage, ServerResponse>();

/** Node would ask for each such body at once, before anybody has looked at the key. */
export function letBodiesWait(server: Server): void {
  server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
    waiting.set(request, response);
    server.emit("request", request, response);
  });
}

/** Call it before the first byte of a body is waited for. */
export function inviteBody(request: IncomingMessage): void {
  if (request.headers.expect === undefined) return;
  const response = waiting.get(request);
  waiting.delete(request);
  if (response?.headersSent === false) response.writeContinue();
}

/** The body was not asked for: it may come all the same or never, so the connection cannot serve another request. */
export const isUninvited = (request: IncomingMessage): boolean =>
  request.headers.expect !== undefined && waiting.has(request);
