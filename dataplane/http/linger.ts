/**
 * Handles a body whose answer goes out before it has arrived (a refused upload). The rest is read and dropped, as a connection
 * that is closed under its sender may lose the answer; but slowly, and not without an end.
 */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { SharedCache } from "../lib/shared-cache.ts";
import { limits } from "./limits.ts";
import { slowReads } from "./read-turns.ts";

/** Requests whose rest is being dropped. */
const dropping = new WeakSet<IncomingMessage>();
/** Connections of answered requests whose bodies go on, by the request's id. */
const lingering = new SharedCache<Socket>(limits.lingering, { evicted: (_, oldest) => oldest.destroy() });

/**
 * Drops what is still to come of a request's body: the first `freeRestBytes` as fast as they come, the rest in turns
 * with all connections that do the same. Call it before the answer is sent: afterwards Node drops the rest as fast as it comes.
 */
export function dropRest(request: IncomingMessage): void {
  const { socket } = request;
  if (request.complete || socket.destroyed || dropping.has(request)) return;
  dropping.add(request);
  let bytes = 0;
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > limits.freeRestBytes) slowReads.wait(socket);
  });
  request.once("end", () => slowReads.leave(socket));
  request.resume();
}

/**
 * Ends the connection of an answered request whose body does not end: after `restMs`, or `restIdleMs` of silence, or
 * when there are more than `limits.lingering` and its sender has the most of them; and at once when a large rest is not being
 * dropped by `dropRest`.
 * @param sender an organization's id, or the address of a caller who is not known.
 * @param id the request's id.
 */
export function endLingering(request: IncomingMessage, sender: string, id: string): void {
  const { socket } = request;
  if (socket.destroyed) return;
  const announced = Number(request.headers["content-length"] ?? Infinity);
  if (!dropping.has(request) && announced > limits.freeRestBytes) {
    socket.destroy();
    return;
  }
  lingering.set(sender, id, socket);
  const deadline = performance.now() + limits.restMs;
  let seen = socket.bytesRead;
  let lastByte = performance.now();
  const watch = setInterval(() => {
    const now = performance.now();
    // Waiting for a turn is not silence.
    if (socket.bytesRead > seen || slowReads.isWaiting(socket)) lastByte = now;
    seen = socket.bytesRead;
    if (now >= deadline || now - lastByte >= limits.restIdleMs) socket.destroy();
  }, limits.connectionsCheckMs);
  watch.unref();
  request.once("close", () => {
    clearInterval(watch);
    lingering.delete(id);
  });
}
