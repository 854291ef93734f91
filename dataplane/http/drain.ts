import { setTimeout as sleep } from "node:timers/promises";
import type { HttpServer } from "./server.ts";

/** Connections that fall idle while draining are looked for this often. */
const SWEEP_MS = 100;

/**
 * Stops taking connections and waits until every running answer is out, at most `timeoutMs`; what is left then is
 * cut. Keep-alive connections are told to close with their next answer, or closed where they are idle.
 * @returns whether everything ended by itself.
 */
export async function drain(server: HttpServer, timeoutMs: number): Promise<boolean> {
  server.drain();
  const node = server.app.server;
  const sweep = setInterval(() => node.closeIdleConnections(), SWEEP_MS);
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
