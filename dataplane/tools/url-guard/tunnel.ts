import { connect as connectTcp, isIPv6, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { connected } from "./connected.ts";

const MAX_ANSWER_BYTES = 16 * 1024;

/**
 * Opens a tunnel through a forward proxy by CONNECT, for port 80 as well: with absolute-form requests the proxy
 * would resolve the name again. `target` is a judged address literal, or a name for a proxy that resolves.
 * The proxy's own address comes from the ToolPolicy, which may hold no credentials, and is not judged.
 * @throws when the proxy cannot be reached or refuses.
 */
export async function openTunnel(
  proxyUrl: string,
  target: string,
  port: number,
  signal: AbortSignal,
): Promise<Socket> {
  const proxy = new URL(proxyUrl);
  const socket = await connectProxy(proxy, signal);
  const authority = `${isIPv6(target) ? `[${target}]` : target}:${port}`;
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\n\r\n`);
  try {
    const { status, rest } = await readAnswer(socket, signal);
    if (status !== 200) throw new Error(`proxy answered ${status}`);
    // Bytes that the server sent first, as HTTP servers never do, are not lost.
    if (rest.length > 0) socket.unshift(rest);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function connectProxy(proxy: URL, signal: AbortSignal): Promise<Socket> {
  const host = proxy.hostname.replace(/^\[|\]$/g, "");
  if (proxy.protocol === "https:") {
    const port = proxy.port === "" ? 443 : Number(proxy.port);
    return connected(
      connectTls({ host, port, ALPNProtocols: ["http/1.1"], rejectUnauthorized: true }),
      "secureConnect",
      signal,
    );
  }
  const port = proxy.port === "" ? 80 : Number(proxy.port);
  return connected(connectTcp({ host, port, noDelay: true }), "connect", signal);
}

/** Reads the proxy's status line and headers; `rest` is what came after them. */
function readAnswer(socket: Socket, signal: AbortSignal): Promise<{ status: number; rest: Buffer }> {
  return new Promise((resolve, reject) => {
    let seen: Buffer = Buffer.alloc(0);
    const finish = (outcome: { status: number; rest: Buffer } | Error) => {
      socket.off("data", onData);
      socket.off("error", onError);
      socket.off("close", onClose);
      signal.removeEventListener("abort", onAbort);
      socket.pause();
      if (outcome instanceof Error) {
        socket.on("error", () => undefined);
        reject(outcome);
      } else resolve(outcome);
    };
    const onError = (error: Error) => finish(error);
    const onClose = () => finish(new Error("proxy closed the connection"));
    const onAbort = () => finish(new Error("proxy did not answer in time"));
    const onData = (chunk: Buffer) => {
      seen = Buffer.concat([seen, chunk]);
      const end = seen.indexOf("\r\n\r\n");
      if (end < 0) {
        if (seen.length > MAX_ANSWER_BYTES) finish(new Error("proxy answer too long"));
        return;
      }
      const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(seen.toString("latin1", 0, end))?.[1] ?? 0);
      finish({ status, rest: seen.subarray(end + 4) });
    };
    socket.on("data", onData);
    socket.once("error", onError);
    socket.once("close", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}
