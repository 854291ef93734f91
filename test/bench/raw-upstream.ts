/**
 * The raw upstream of the bench, a process of its own: it looks at the request's first line and its length, and
 * answers with prebuilt bytes. Prints its port.
 */
import { createServer, type Socket } from "node:net";
import { answers, modes, PACE_MS, writes, type Mode } from "./payloads.ts";

const HEAD_END = "\r\n\r\n";

function serve(socket: Socket): void {
  /** What has come of a request that is not whole yet. */
  let pending: Buffer | null = null;
  socket.setNoDelay(true);
  socket.on("error", () => {});
  socket.on("data", (chunk: Buffer) => {
    let bytes: Buffer = pending === null ? chunk : Buffer.concat([pending, chunk]);
    for (;;) {
      const headEnd = bytes.indexOf(HEAD_END);
      if (headEnd === -1) break;
      const head = bytes.toString("latin1", 0, headEnd);
      const length = Number(/content-length: *(\d+)/i.exec(head)?.[1] ?? 0);
      const end = headEnd + HEAD_END.length + length;
      if (bytes.length < end) break;
      answer(socket, modeOf(head));
      bytes = bytes.subarray(end);
    }
    pending = bytes.length === 0 ? null : bytes;
  });
}

function modeOf(head: string): Mode {
  const segment = /^POST \/([a-z-]+)/.exec(head)?.[1];
  const mode = modes.find((name) => name === segment);
  if (mode === undefined) throw new Error(`the raw upstream was asked for ${head.slice(0, 100)}`);
  return mode;
}

function answer(socket: Socket, mode: Mode): void {
  const parts = writes[mode];
  if (parts === undefined) socket.write(answers[mode]);
  else step(socket, parts, 0, mode === "paced");
}

function step(socket: Socket, parts: readonly Buffer[], n: number, paced: boolean): void {
  const bytes = parts[n];
  if (bytes === undefined || socket.destroyed) return;
  socket.write(bytes);
  if (paced) setTimeout(step, PACE_MS, socket, parts, n + 1, paced);
  // A turn later, or Node would join the writes.
  else setImmediate(step, socket, parts, n + 1, paced);
}

const server = createServer(serve);
server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () => {
  const address = server.address();
  if (address !== null && typeof address === "object") console.log(`port ${address.port}`);
});
process.once("SIGTERM", () => process.exit(0));
