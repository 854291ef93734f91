/** Connections that the gateway cut: requests on them did not end because a client left. */
import type { Socket } from "node:net";

const cut = new WeakSet<Socket>();

/** Cuts a connection, whatever is under way on it. */
export function cutConnection(socket: Socket): void {
  cut.add(socket);
  socket.destroy();
}

export const wasCut = (socket: Socket): boolean => cut.has(socket);
