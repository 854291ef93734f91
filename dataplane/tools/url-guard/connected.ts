import type { Socket } from "node:net";

/** Resolves once the socket is usable; on error, close or abort it is destroyed and the promise rejects. */
export function connected<S extends Socket>(
  socket: S,
  event: "connect" | "secureConnect",
  signal: AbortSignal,
): Promise<S> {
  return new Promise((resolve, reject) => {
    const settle = (error?: Error) => {
      socket.off(event, onReady);
      socket.off("error", settle);
      socket.off("close", onClose);
      signal.removeEventListener("abort", onAbort);
      if (error === undefined) {
        resolve(socket);
        return;
      }
      socket.on("error", () => undefined);
      socket.destroy();
      reject(error);
    };
    const onReady = () => settle();
    const onClose = () => settle(new Error("connection closed"));
    const onAbort = () => settle(signal.reason instanceof Error ? signal.reason : new Error("aborted"));
    socket.once(event, onReady);
    socket.once("error", settle);
    socket.once("close", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}
