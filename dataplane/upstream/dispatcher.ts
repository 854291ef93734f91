import { Agent, buildConnector, type Dispatcher } from "undici";
import type { Socket } from "node:net";
import {
  KEEP_ALIVE_MS,
  MAX_CONNECT_MS,
  MAX_CONNECTIONS_PER_ORIGIN,
  MAX_HEADER_BYTES,
  OVERHEAD,
} from "./limits.ts";
import { boundOverhead } from "./overhead.ts";

/** For errors of sockets that had received bytes before: when the socket was opened (`performance.now()`). */
const openedAt = new WeakMap<Error, number>();

/**
 * Whether an error is of a kept-alive connection that had been used before this request was dispatched. Such a request was
 * almost surely not processed, so the error says nothing about the upstream's health (design.md §4.7).
 */
export function isStaleConnectionError(error: Error, dispatchedAt: number): boolean {
  const opened = openedAt.get(error);
  return opened !== undefined && opened < dispatchedAt;
}

/**
 * The pooled HTTP/1.1 connections to all upstreams; without `keepAlive` each request gets a new one. Time-outs belong to the requests (`send.ts`), not to the pool.
 * Private authorities: Node reads `NODE_EXTRA_CA_CERTS`. Redirects are not followed (rule 1.3).
 */
export function newUpstreamDispatcher({ keepAlive = true } = {}): Dispatcher {
  const connect = buildConnector({ timeout: MAX_CONNECT_MS, allowH2: false });
  return new Agent({
    connections: MAX_CONNECTIONS_PER_ORIGIN,
    // With 0, undici closes each connection after its request.
    pipelining: keepAlive ? 1 : 0,
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: MAX_HEADER_BYTES,
    connect: (options, callback) => {
      const opened = performance.now();
      const socket = connect(options, callback) as unknown as Socket;
      // undici emits its own "other side closed" here too.
      socket.prependListener("error", (error) => {
        if (socket.bytesRead > 0) openedAt.set(error, opened);
      });
      return boundOverhead(socket, OVERHEAD);
    },
  });
}
