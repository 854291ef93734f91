/** A TCP proxy in front of a store, to cut one data plane off from it while others still reach it. */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export interface TcpProxy {
  /** The store's address with the proxy's host and port. */
  readonly url: string;
  /** Nothing passes any more, in either direction; connections stay open, new ones get no answer. */
  cutOff(): void;
  /** Breaks what was cut off; new connections pass again. */
  reconnect(): void;
  close(): Promise<void>;
}

export async function tcpProxy(url: string): Promise<TcpProxy> {
  const { hostname: host, port } = new URL(url);
  const sockets = new Set<Socket>();
  let isCut = false;
  const pass = (from: Socket, to: Socket) => {
    sockets.add(from);
    from.on("data", (bytes) => {
      if (isCut) return;
      if (to.write(bytes)) return;
      from.pause();
      to.once("drain", () => from.resume());
    });
    from.on("error", () => {});
    from.on("close", () => {
      sockets.delete(from);
      if (!isCut) to.destroy();
    });
  };
  const server = createServer((client) => {
    if (isCut) {
      sockets.add(client);
      client.on("error", () => {});
      return;
    }
    const store = connect({ host, port: Number(port) });
    pass(client, store);
    pass(store, client);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const own = new URL(url);
  own.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const breakAll = () => {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
  };
  return {
    url: own.href,
    cutOff: () => {
      isCut = true;
    },
    reconnect: () => {
      breakAll();
      isCut = false;
    },
    close: async () => {
      breakAll();
      await new Promise((done) => server.close(done));
    },
  };
}
