/**
 * Closes idle connections on which no valid key was ever sent (rule 7.7). Connections of known clients stay for as long as an
 * Ingress keeps them; nobody else may have thousands of them. One timer looks at all connections every second, as for stalled
 * clients.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { answering } from "./bare-socket.ts";
import { limits } from "./limits.ts";
import { takenFrom } from "./stalled-clients.ts";

/** Looks in a row without traffic that end a connection. */
const LOOKS = Math.ceil(limits.keylessIdleMs / limits.keylessCheckMs);

const keyed = new WeakSet<Socket>();

/** Marks a connection over which a valid key came. */
export function showedKey(socket: Socket): void {
  keyed.add(socket);
}

/** Announces how long a keyless connection stays open; Node would announce the server's usual time. */
export function announceKeyless(response: ServerResponse): void {
  if (!keyed.has(response.req.socket)) Reflect.set(response, "_keepAliveTimeout", limits.keylessIdleMs);
}

interface Silence {
  readonly bytes: number;
  readonly looks: number;
}

export class KeylessConnections {
  readonly #connections: ReadonlySet<Socket>;
  /** Connections that were idle at the last look. */
  #idle = new Map<Socket, Silence>();

  constructor(connections: ReadonlySet<Socket>) {
    this.#connections = connections;
  }

  /** @returns the stop function. */
  start(): () => void {
    const timer = setInterval(() => this.look(), limits.keylessCheckMs);
    timer.unref();
    return () => clearInterval(timer);
  }

  look(): void {
    const idle = new Map<Socket, Silence>();
    for (const socket of this.#connections) {
      if (keyed.has(socket)) continue;
      // The client waits for an answer. One that is ready and not taken is the client's idleness.
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
