/** Rule 7.3: servers that send for ever without ever saying anything. */
import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { request } from "undici";
import { afterEach, expect, test } from "vitest";
import { egressRules } from "./address.ts";
import { guardedDispatcher } from "./dispatcher.ts";

const PACKET_BYTES = 64 * 1024;
/** What may have been on its way when the connection was ended. */
const MOST_BYTES = 16 * 1024 * 1024;

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** Its URL, and how to ask it. */
async function serverThat(answer: (socket: Socket) => void) {
  const server = createServer((socket) => {
    socket.on("error", () => undefined).once("data", () => answer(socket));
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return async () => {
    const signal = AbortSignal.timeout(20_000);
    const dispatcher = guardedDispatcher({
      rules: egressRules({ allowCidrs: ["127.0.0.0/8"], allowPorts: [port] }),
      resolver: { resolve: () => Promise.reject(new Error("no names here")) },
      proxy: null,
      signal,
    });
    try {
      const { body } = await request(`http://127.0.0.1:${port}/`, { dispatcher, signal });
      return await body.text();
    } finally {
      await dispatcher.destroy();
    }
  };
}

/** `text`, as often as it fits into a packet. */
const packetOf = (text: string) => Buffer.from(text.repeat(Math.ceil(PACKET_BYTES / text.length)));
const chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

test.each([
  ["interim answers", "", "HTTP/1.1 102 \r\n\r\n"],
  ["early hints", "", "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"],
  ["blank lines before an answer", "", "\r\n"],
  ["a reason without an end", "HTTP/1.1 200 ", "O"],
  ["blanks before a header's value", "HTTP/1.1 200 OK\r\nx:", " "],
  ["a chunk's size that begins with zeros", chunked, "0"],
  ["a chunk's extension without an end", `${chunked}1;a=`, "a"],
  ["chunks of one byte", chunked, "1\r\na\r\n"],
  ["chunks with long extensions", chunked, `1;${"a".repeat(60)}\r\na\r\n`],
])("%s are not read for ever", async (_, head, endless) => {
  let sentBytes = 0;
  const ask = await serverThat((socket) => {
    const packet = packetOf(endless);
    socket.write(head);
    const more = (error?: Error | null) => {
      if (error || socket.destroyed) return;
      sentBytes += packet.length;
      socket.write(packet, more);
    };
    more();
  });
  await expect(ask()).rejects.toThrow(expect.objectContaining({ name: "TooMuchOverhead" }));
  expect(sentBytes).toBeLessThan(MOST_BYTES);
});

test("pages in small chunks, after hints and on kept connections, are", async () => {
  const line = "a line of thirty-two characters\n";
  const chunk = `20\r\n${line}\r\n`;
  const ask = await serverThat((socket) => {
    socket.write("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(100));
    socket.end(`${chunked}${chunk.repeat(100_000)}0\r\n\r\n`);
  });
  expect((await ask()).length).toBe(100_000 * line.length);
});
