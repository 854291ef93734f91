/** `Expect: 100-continue`: a client that asks first sends its body only when it will be read (RFC 9110 §10.1.1). */
import type { IncomingMessage, Server, ServerResponse } from "node:http";

/** Requests that wait for `100 Continue` before they send their bodies. */
const waiting = new WeakMap<IncomingMessage, ServerResponse>();

/** Keeps Node from sending `100 Continue` at once, before the key was looked at. */
export function letBodiesWait(server: Server): void {
  server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
    waiting.set(request, response);
    server.emit("request", request, response);
  });
}

/** Sends `100 Continue` if it is awaited; call it before waiting for a body. */
export function inviteBody(request: IncomingMessage): void {
  if (request.headers.expect === undefined) return;
  const response = waiting.get(request);
  waiting.delete(request);
  if (response?.headersSent === false) response.writeContinue();
}

/** Whether `100 Continue` was not sent: the body may come or not, so the connection cannot serve another request. */
export const isUninvited = (request: IncomingMessage): boolean =>
  request.headers.expect !== undefined && waiting.has(request);
