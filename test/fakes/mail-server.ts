/** A port where no HTTP is spoken: whatever is asked, it greets as a mail server does. */
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";

export interface MailServer {
  readonly port: number;
  close(): void;
}

export async function startMailServer(): Promise<MailServer> {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", () => void socket.end("220 mail.example ESMTP\r\n"));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: (server.address() as AddressInfo).port, close: () => void server.close() };
}
