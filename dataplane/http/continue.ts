/** `Expect: 100-continue`: a client that asks first sends its body only when it will be read (RFC 9110 §10.1.1). */
import type { IncomingMessage, Server, ServerResponse } from "node:http";

/** Requests whose bodies were asked about and not asked for yet. */
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

/** Its body will never come, or unasked: the connection cannot be used for another request. */
export const isUninvited = (request: IncomingMessage): boolean =>
  request.headers.expect !== undefined && waiting.has(request);
