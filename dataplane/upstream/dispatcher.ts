import { Agent, buildConnector, type Dispatcher } from "undici";
import type { Socket } from "node:net";
import { KEEP_ALIVE_MS, MAX_CONNECT_MS, MAX_CONNECTIONS_PER_ORIGIN, MAX_HEADER_BYTES } from "./limits.ts";

/** Errors of sockets that had answered an earlier request: the peer closed an idle connection under us. */
const reusedSocketErrors = new WeakSet<Error>();

/**
 * Whether an error struck a kept-alive connection that had served before. Such a request was almost surely never
 * looked at, so it says nothing about the upstream's health (design.md §4.7).
 */
export function isStaleConnectionError(error: Error): boolean {
  if (reusedSocketErrors.has(error)) return true;
  // undici's own "other side closed" carries what its socket had read so far; ours had read nothing of this answer.
  const { socket } = error as Error & { socket?: { bytesRead?: number } | null };
  return (socket?.bytesRead ?? 0) > 0;
}

/**
 * The pooled HTTP/1.1 connections to all upstreams; without `keepAlive` each request gets a new one. Time-outs belong to the requests (`send.ts`), not to the pool.
 * Private authorities: Node reads `NODE_EXTRA_CA_CERTS`. Redirects are not followed (rule 1.3).
 */
export function newUpstreamDispatcher({ keepAlive = true } = {}): Dispatcher {
  const connect = buildConnector({ timeout: MAX_CONNECT_MS, allowH2: false });
  return new Agent({
    connections: MAX_CONNECTIONS_PER_ORIGIN,
    // 0 is undici's word for closing each connection after its request.
    pipelining: keepAlive ? 1 : 0,
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: MAX_HEADER_BYTES,
    connect: (options, callback) => {
      const socket = connect(options, callback) as unknown as Socket;
      socket.prependListener("error", (error) => {
        if (socket.bytesRead > 0) reusedSocketErrors.add(error);
      });
      return socket;
    },
  });
}
