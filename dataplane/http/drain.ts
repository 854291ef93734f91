/** Ends the connections of a server that is asked to stop, once their answers are out. */
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Shutdown } from "../lib/shutdown.ts";
import { answering } from "./bare-socket.ts";
import { cutConnection } from "./cut-connections.ts";
import type { HttpServer } from "./server.ts";

/** Connections are looked at this often while draining. */
const SWEEP_MS = 100;
/** A connection on which no request is under way gets this long to send one that was already on its way. */
const GRACE_MS = 1000;
/** Connections are taken for at most so long after draining has begun. */
const LISTENING_MS = 3 * GRACE_MS;
/** What is still under way when the time is over gets so long to say so to its client, and to be charged. */
const LAST_WORDS_MS = 2000;

/**
 * Waits until every running answer is out, at most `timeoutMs`, and no longer once `hurry` is aborted; what is left then is
 * told of it, ends in its dialect's error (rule 2.13), and is cut where it does not. Each answer closes its connection, and
 * idle ones are closed once they have been quiet for a while: closed at once, they would swallow the requests that clients
 * are just sending over them. New connections are still taken in that time, and then no more.
 * @returns whether everything ended by itself.
 */
export async function drain(
  server: HttpServer,
  timeoutMs: number,
  shutdown?: Shutdown,
  hurry: AbortSignal = new AbortController().signal,
): Promise<boolean> {
  server.drain();
  const quietSince = new Map<Socket, number>();
  const sweep = setInterval(() => closeQuiet(server.connections, quietSince), SWEEP_MS);
  const deadline = new AbortController();
  try {
    const waiting = AbortSignal.any([deadline.signal, hurry]);
    const late = sleep(timeoutMs, false, { signal: waiting, ref: false }).catch(() => false);
    await idleConnectionsGone(server.connections, Math.min(timeoutMs, LISTENING_MS), hurry);
    const closed = server.app.close().then(() => true);
    if (await Promise.race([closed, late])) return true;
    if (shutdown !== undefined) {
      shutdown.tell();
      await Promise.race([closed, sleep(LAST_WORDS_MS, undefined, { signal: deadline.signal, ref: false })]);
    }
    server.connections.forEach(cutConnection);
    await closed;
    return false;
  } finally {
    deadline.abort();
    clearInterval(sweep);
  }
}

/** A server that closes ends its idle connections at once, so this comes first. */
async function idleConnectionsGone(
  connections: ReadonlySet<Socket>,
  timeoutMs: number,
  hurry: AbortSignal,
): Promise<void> {
  const startedAt = performance.now();
  const elapsed = () => performance.now() - startedAt;
  const isBusy = () => [...connections].every((socket) => answering(socket));
  while (
    connections.size > 0 &&
    elapsed() < timeoutMs &&
    !hurry.aborted &&
    !(elapsed() > GRACE_MS && isBusy())
  )
    await sleep(SWEEP_MS);
}

/** Node calls a connection idle only after its first request; here also one that has never sent any. */
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
