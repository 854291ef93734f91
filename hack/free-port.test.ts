import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { expect, test } from "vitest";
import { freePort } from "./free-port.ts";

test("a port can be listened on, and no outgoing connection is given it", async () => {
  const [lowest = ""] = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").split(/\s+/);
  for (let time = 0; time < 20; time += 1) {
    const port = await freePort();
    expect(port).toBeLessThan(Number(lowest));
    const server = createServer().listen(port, "127.0.0.1");
    await once(server, "listening");
    server.close();
    await once(server, "close");
  }
});

test("a port is not given twice, also where nobody has come to listen on it yet", async () => {
  const ports = await Promise.all(Array.from({ length: 500 }, freePort));
  expect(new Set(ports).size).toBe(500);
});
