import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { answering, type HttpServer } from "./server.ts";

/** Connections that fall idle while draining are looked for this often. */
const SWEEP_MS = 100;
/** A connection on which no request is under way gets this long to send one that was already on its way. */
const GRACE_MS = 1000;

/**
 * Stops taking connections and waits until every running answer is out, at most `timeoutMs`; what is left then is
 * cut. Keep-alive connections are told to close with their next answer, or closed where they are idle.
 * @returns whether everything ended by itself.
 */
export async function drain(server: HttpServer, timeoutMs: number): Promise<boolean> {
  server.drain();
  const node = server.app.server;
  const quietSince = new Map<Socket, number>();
  const sweep = setInterval(() => {
    node.closeIdleConnections();
    closeQuiet(server.connections, quietSince);
  }, SWEEP_MS);
  const deadline = new AbortController();
  try {
    const closed = server.app.close().then(() => true);
    const late = sleep(timeoutMs, false, { signal: deadline.signal, ref: false }).catch(() => false);
    if (await Promise.race([closed, late])) return true;
    node.closeAllConnections();
    await closed;
    return false;
  } finally {
    deadline.abort();
    clearInterval(sweep);
  }
}

/**
 * Node calls a connection idle only after its first request, and stops watching for slow headers once a server
 * closes: a client that connected and says nothing would hold up the end.
 */
function closeQuiet(connections: ReadonlySet<Socket>, quietSince: Map<Socket, number>): void {
  const now = performance.now();
  for (const socket of connections) {
    if (answering(socket)) {
      quietSince.delete(socket);
      continue;
    }
    const since = quietSince.get(socket) ?? now;
    quietSince.set(socket, since);
    if (now - since >= GRACE_MS) socket.destroy();
  }
}
