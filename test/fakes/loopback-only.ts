/**
 * Keeps a test on this machine: while it watches, a client socket to anything but loopback throws instead of
 * connecting, and every client socket is counted.
 */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";

export class SocketWatch {
  /** Client sockets opened since the watch began or `reset()`. */
  opened = 0;
  /** Where sockets were meant to go that may not be reached from a test. */
  readonly escaped: string[] = [];

  readonly #onSocket = (message: unknown) => {
    this.opened += 1;
    const { socket } = message as { socket: Socket };
    const connect = socket.connect.bind(socket) as (...args: unknown[]) => Socket;
    socket.connect = (...args: unknown[]) => {
      const target = destination(args);
      if (!/^(127\.\d+\.\d+\.\d+|::1|localhost|\/.*)$/.test(target)) {
        this.escaped.push(target);
        throw new Error(`a test must not connect to ${target}`);
      }
      return connect(...args);
    };
  };

  constructor() {
    subscribe("net.client.socket", this.#onSocket);
  }

  reset(): void {
    this.opened = 0;
  }

  stop(): void {
    unsubscribe("net.client.socket", this.#onSocket);
  }
}

/** Host or socket path out of `connect`'s arguments, which may be normalised to `[[options, callback]]`. */
function destination(args: readonly unknown[]): string {
  const first = Array.isArray(args[0]) ? (args[0] as unknown[])[0] : args[0];
  if (typeof first === "object" && first !== null) {
    const options = first as { host?: string; path?: string };
    return options.path ?? options.host ?? "localhost";
  }
  return typeof args[1] === "string" ? args[1] : "localhost";
}
