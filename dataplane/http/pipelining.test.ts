import { once } from "node:events";
import { createServer, IncomingMessage } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import { expect, test } from "vitest";
import { limits } from "./limits.ts";
import { boundPipelining } from "./pipelining.ts";

const REQUEST = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

test("of a thousand requests in one packet those beyond the limit are not even made, and the next connection is served", async () => {
  let made = 0;
  class Counted extends IncomingMessage {
    constructor(socket: Socket) {
      super(socket);
      made += 1;
    }
  }
  let served = 0;
  const server = createServer({ IncomingMessage: Counted }, (request, response) => {
    served += 1;
    if (request.url === "/next") response.end("served");
  });
  boundPipelining(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  try {
    for (let connection = 1; connection <= 3; connection += 1) {
      const attacker = connect(port, "127.0.0.1");
      attacker.on("error", () => {});
      attacker.resume();
      attacker.write(REQUEST.repeat(1_000));
      await once(attacker, "close");
      // One is being answered, so many wait, one too many ends the connection, and the next one the parsing.
      expect(made).toBe(connection * (limits.pipelined + 3));
      expect(served).toBe(connection * (limits.pipelined + 1));
    }
    // Node keeps parsers for later connections.
    expect(await (await fetch(`http://127.0.0.1:${port}/next`)).text()).toBe("served");
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
