/** The real HTTP server on a loopback port, over a sample snapshot; what it serves is the test's own. */
import { connect, type AddressInfo, type Socket } from "node:net";
import { pino } from "pino";
import { expect } from "vitest";
import { SnapshotDirectory } from "./snapshot-directory.ts";
import type { Snapshot } from "../../dataplane/config/snapshot.ts";
import type { HttpServices, Routes } from "../../dataplane/http/route.ts";
import { UnknownCallers } from "../../dataplane/http/unknown-callers.ts";
import { createServer, type HttpServer } from "../../dataplane/http/server.ts";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { sampleKeys, sampleSnapshot } from "./sample-snapshot.ts";

export interface TestServer {
  readonly url: string;
  readonly port: number;
  readonly server: HttpServer;
  /** Lines of the log so far, parsed. */
  readonly logged: Record<string, unknown>[];
  /** `fetch` on a path of the server, with an inference key unless the headers say otherwise. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  [Symbol.asyncDispose](): Promise<void>;
}

export async function startTestServer(
  routes: readonly Routes[],
  options: { readonly snapshot?: () => Snapshot; readonly services?: Partial<HttpServices> } = {},
): Promise<TestServer> {
  const fixed = sampleSnapshot();
  const snapshot = options.snapshot ?? (() => fixed);
  const logged: Record<string, unknown>[] = [];
  const log = pino({ base: null }, { write: (line: string) => void logged.push(JSON.parse(line)) });
  const server = createServer(
    {
      log,
      clock: systemClock,
      newId,
      directory: new SnapshotDirectory(snapshot),
      // Tests of errors send more wrong keys than anybody may.
      unknownCallers: new UnknownCallers(() => performance.now(), 1e6, 1e6),
      bodies: new ByteBudget(1024 ** 3),
      snapshot,
      ...options.services,
    },
    routes,
  );
  await server.app.listen({ port: 0, host: "127.0.0.1" });
  const { port } = server.app.server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    port,
    server,
    logged,
    fetch: (path, init = {}) => {
      const headers = new Headers(init.headers);
      if (!headers.has("authorization") && !headers.has("x-api-key")) {
        headers.set("authorization", `Bearer ${sampleKeys.inference}`);
      }
      return fetch(url + path, { ...init, headers });
    },
    [Symbol.asyncDispose]: async () => {
      server.app.server.closeAllConnections();
      await server.app.close();
    },
  };
}

/** The status that a bare connection is answered with. */
export async function statusOn(socket: Socket): Promise<string> {
  let answer = "";
  socket.on("data", (bytes) => (answer += bytes.toString("latin1")));
  await expect.poll(() => answer, { timeout: 10_000 }).toMatch(/^HTTP\/1\.1 \d{3} /);
  return answer.slice(9, 12);
}

/** Sends a body of blanks, with a key, whoever reads it. */
export function upload(port: number, path: string, bytes: number): Socket {
  const socket = connect(port, "127.0.0.1").on("error", () => {});
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\n` +
      `content-type: application/json\r\ncontent-length: ${bytes}\r\n\r\n`,
  );
  socket.write(Buffer.alloc(bytes, 0x20));
  return socket;
}
