/**
 * Cuts clients that take nothing of their answers (design.md §4.7). One timer looks at all connections every few seconds: a
 * client that keeps up costs neither a timer nor a listener. (Node's own socket time-out strikes after one to two times what it
 * was set to when some of a write has left in between.)
 */
import type { Socket } from "node:net";
import { limits } from "./limits.ts";

/** Looks in a row without progress that cut a client. Looks, not time: a process that was paused must cut nobody. */
const LOOKS = Math.ceil(limits.stalledClientMs / limits.connectionsCheckMs);

const stalled = new WeakSet<Socket>();

/** Whether this connection was cut because its client took nothing. */
export const hasStalled = (socket: Socket): boolean => stalled.has(socket);

interface Progress {
  readonly takenBytes: number;
  /** Looks since the client was first seen at `takenBytes`. */
  readonly looks: number;
}

export class StalledClients {
  readonly #connections: ReadonlySet<Socket>;
  /** Connections that had not taken everything at the last look. */
  #behind = new Map<Socket, Progress>();

  constructor(connections: ReadonlySet<Socket>) {
    this.#connections = connections;
  }

  /** @returns the stop function. */
  start(): () => void {
    const timer = setInterval(() => this.look(), limits.connectionsCheckMs);
    timer.unref();
    return () => clearInterval(timer);
  }

  look(): void {
    const behind = new Map<Socket, Progress>();
    for (const socket of this.#connections) {
      if (socket.writableLength === 0) continue;
      const takenBytes = takenFrom(socket);
      const before = this.#behind.get(socket);
      const looks = before?.takenBytes === takenBytes ? before.looks + 1 : 0;
      if (looks < LOOKS) behind.set(socket, { takenBytes, looks });
      else {
        stalled.add(socket);
        socket.destroy();
      }
    }
    this.#behind = behind;
  }
}

/** Bytes that the kernel has taken of all that was written: only the handle knows how far it got within one large write. */
export function takenFrom(socket: Socket): number {
  const handle = Reflect.get(socket, "_handle") as { bytesWritten: number; writeQueueSize: number } | null;
  return handle === null ? 0 : handle.bytesWritten - handle.writeQueueSize;
}
