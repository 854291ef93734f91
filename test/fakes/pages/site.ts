/**
 * A web site for tests of the page fetcher, on loopback: what it serves is a table of paths, and it keeps a log of
 * what it was asked. Nothing here is meant to be realistic but the ways in which sites misbehave.
 */
import { once } from "node:events";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";

export type Page = (request: IncomingMessage, response: ServerResponse) => void;

export interface Asked {
  readonly host: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
}

export class FakeSite {
  readonly asked: Asked[] = [];
  /** Connections accepted since the start. */
  connections = 0;
  readonly #pages: ReadonlyMap<string, Page>;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(pages: Readonly<Record<string, Page>>, server: Server) {
    this.#pages = new Map(Object.entries(pages));
    this.#server = server;
    server.on("connection", (socket) => {
      this.connections += 1;
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    server.on("request", (request, response) => {
      const path = request.url ?? "";
      this.asked.push({ host: request.headers.host ?? "", path, headers: request.headers });
      const page = this.#pages.get(path) ?? this.#pages.get(path.split("?")[0] ?? "") ?? notFound;
      page(request, response);
    });
  }

  /** @param pages by path, with or without query; other paths are 404. */
  static async start(pages: Readonly<Record<string, Page>>, host = "127.0.0.1"): Promise<FakeSite> {
    const server = createServer();
    const site = new FakeSite(pages, server);
    server.listen(0, host);
    await once(server, "listening");
    return site;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The paths asked for, in order. */
  get paths(): string[] {
    return this.asked.map(({ path }) => path);
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }
}

const notFound: Page = (_, response) => {
  response.writeHead(404, { "content-type": "text/plain" }).end("not found");
};

/** A whole answer. */
export function answer(body: string | Buffer, headers: Record<string, string> = {}, status = 200): Page {
  return (_, response) => {
    response.writeHead(status, { "content-type": "text/html; charset=utf-8", ...headers }).end(body);
  };
}

export const redirect = (location: string, status = 302): Page => answer("", { location }, status);

/** Sends the head and then a byte now and then. */
export function drip(everyMs: number): Page {
  return (_, response) => {
    response.writeHead(200, { "content-type": "text/plain" });
    const timer = setInterval(() => response.write("."), everyMs);
    response.on("close", () => clearInterval(timer));
  };
}

/** Sends until the reader goes away. */
export function endless(contentType: string): Page {
  const chunk = Buffer.alloc(64 * 1024, "endless ");
  return (_, response) => {
    response.writeHead(200, { "content-type": contentType });
    const more = () => {
      while (!response.destroyed && response.write(chunk));
    };
    response.on("drain", more);
    more();
  };
}

/** Never answers. */
export const silent: Page = () => undefined;

/** Breaks the connection in the middle of the body. */
export const cutOff: Page = (_, response) => {
  response.writeHead(200, { "content-type": "text/html", "content-length": "1000" });
  response.write("<p>half");
  setTimeout(() => response.destroy(), 20);
};
