/**
 * Closes connections on which no valid key was ever shown once they are idle (rule 7.7): those of clients that are
 * known stay for as long as an Ingress keeps them, and nobody else may have thousands of them. One look at all
 * connections every second, as for stalled clients.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { answering } from "./bare-socket.ts";
import { limits } from "./limits.ts";
import { takenFrom } from "./stalled-clients.ts";

/** So many looks in a row at which nothing had moved. */
const LOOKS = Math.ceil(limits.keylessIdleMs / limits.keylessCheckMs);

const keyed = new WeakSet<Socket>();

/** A valid key came over this connection. */
export function showedKey(socket: Socket): void {
  keyed.add(socket);
}

/** Tells the client how long its connection stays, where that is not long: Node would say the server's usual time. */
export function announceKeyless(response: ServerResponse): void {
  if (!keyed.has(response.req.socket)) Reflect.set(response, "_keepAliveTimeout", limits.keylessIdleMs);
}

interface Silence {
  readonly bytes: number;
  readonly looks: number;
}

export class KeylessConnections {
  readonly #connections: ReadonlySet<Socket>;
  /** Those that were idle at the last look. */
  #idle = new Map<Socket, Silence>();

  constructor(connections: ReadonlySet<Socket>) {
    this.#connections = connections;
  }

  /** @returns stops it. */
  start(): () => void {
    const timer = setInterval(() => this.look(), limits.keylessCheckMs);
    timer.unref();
    return () => clearInterval(timer);
  }

  look(): void {
    const idle = new Map<Socket, Silence>();
    for (const socket of this.#connections) {
      if (keyed.has(socket)) continue;
      // An answer is waited for. One that is there and not taken is the client's idleness.
      if (answering(socket) && socket.writableLength === 0) continue;
      const bytes = socket.bytesRead + takenFrom(socket);
      const before = this.#idle.get(socket);
      const looks = before?.bytes === bytes ? before.looks + 1 : 0;
      if (looks < LOOKS) idle.set(socket, { bytes, looks });
      else socket.destroy();
    }
    this.#idle = idle;
  }
}
