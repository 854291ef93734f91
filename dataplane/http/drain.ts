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
/** New connections are accepted for at most so long after draining has begun. */
const LISTENING_MS = 3 * GRACE_MS;
/** Requests still under way at the deadline get so long to send their error and to be charged. */
const LAST_WORDS_MS = 2000;

/**
 * Waits until every running answer is out, at most `timeoutMs`, and no longer once `hurry` is aborted. Then `shutdown` tells
 * the answers still running to end with their dialect's error (rule 2.13); those that do not are cut. Each answer closes its
 * connection. Idle connections are closed after `GRACE_MS`: closed at once, they would lose the requests that clients are just
 * sending over them. New connections are accepted for at most `LISTENING_MS`.
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

/** Waits for idle connections to end: `app.close()`, which comes next, cuts them. */
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

/** Closes idle connections after `GRACE_MS`; for Node one that has never sent a request is not idle, for us it is. */
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
