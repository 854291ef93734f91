/** What becomes of a body that was answered before it had come (a refused upload). */
import type { IncomingMessage } from "node:http";
import { limits } from "./limits.ts";

/**
 * Reads and drops the rest: a connection that is closed under its sender loses the answer. Not without an end: after
 * `restMs`, or `restIdleMs` of silence, the connection is closed all the same.
 */
export function letRestFlow(request: IncomingMessage): void {
  const { socket } = request;
  if (socket.destroyed) return;
  request.resume();
  const deadline = performance.now() + limits.restMs;
  let seen = socket.bytesRead;
  let lastByte = performance.now();
  const watch = setInterval(() => {
    const now = performance.now();
    if (socket.bytesRead > seen) lastByte = now;
    seen = socket.bytesRead;
    const over = now >= deadline || now - lastByte >= limits.restIdleMs;
    if (over && !request.complete) socket.destroy();
    if (over || request.complete || socket.destroyed) clearInterval(watch);
  }, limits.connectionsCheckMs);
  watch.unref();
}
