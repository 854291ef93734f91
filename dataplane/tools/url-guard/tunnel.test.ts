import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { request } from "undici";
import { afterEach, describe, expect, test } from "vitest";
import { egressRules } from "./address.ts";
import { guardedDispatcher } from "./dispatcher.ts";
import type { Resolver } from "./resolver.ts";

const open = new Set<{ close(): void }>();
afterEach(() => {
  for (const server of open) server.close();
  open.clear();
});

async function listen(onSocket: (socket: Socket) => void): Promise<{ server: Server; port: number }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    onSocket(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  open.add({
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  });
  return { server, port: (server.address() as AddressInfo).port };
}

/** A proxy that notes what it is asked and answers inside the tunnel itself, so that nothing is ever connected on. */
async function fakeProxy(answer = "HTTP/1.1 200 Connection established\r\n\r\n") {
  const heard: string[] = [];
  const { port } = await listen((socket) => {
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1");
      if (!text.includes("\r\n\r\n")) return;
      heard.push(text);
      const first = text.startsWith("CONNECT");
      text = "";
      socket.write(first ? answer : "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    });
  });
  return { heard, port };
}

const resolver: Resolver = {
  resolve: (name) =>
    name.replace(/\.$/, "") === "page.example"
      ? Promise.resolve(["93.184.216.34"])
      : name === "six.example"
        ? Promise.resolve(["2606:4700::1"])
        : Promise.resolve(["10.0.0.1"]),
};

async function fetchThrough(url: string, proxy: { url: string; resolves: boolean }): Promise<string | null> {
  const dispatcher = guardedDispatcher({
    rules: egressRules({ allowCidrs: [], allowPorts: [] }),
    resolver,
    proxy,
    signal: AbortSignal.timeout(3_000),
  });
  try {
    const { body } = await request(url, { dispatcher });
    return await body.text();
  } catch {
    return null;
  } finally {
    await dispatcher.destroy();
  }
}

describe("rule 3.16: with egress.proxy the gateway resolves and judges the name and CONNECTs to the address", () => {
  test("port 80 goes through CONNECT to the literal too, with the name as Host", async () => {
    const { heard, port } = await fakeProxy();
    expect(
      await fetchThrough("http://page.example/x", { url: `http://127.0.0.1:${port}`, resolves: false }),
    ).toBe("hi");
    expect(heard[0]).toMatch(/^CONNECT 93\.184\.216\.34:80 HTTP\/1\.1\r\nhost: 93\.184\.216\.34:80\r\n\r\n$/);
    expect(heard[1]).toMatch(/^GET \/x HTTP\/1\.1\r\nhost: page\.example\r\n/i);
  });

  test("an IPv6 literal is bracketed", async () => {
    const { heard, port } = await fakeProxy();
    const url = `http://127.0.0.1:${port}`;
    expect(await fetchThrough("http://six.example/", { url, resolves: false })).toBe("hi");
    expect(heard[0]).toContain("CONNECT [2606:4700::1]:80 HTTP/1.1");
  });

  test("the TLS handshake inside the tunnel carries the name", async () => {
    let hello = Buffer.alloc(0);
    const { port } = await listen((socket) => {
      let tunnel = false;
      socket.on("data", (chunk) => {
        if (tunnel) {
          hello = Buffer.concat([hello, chunk]);
          socket.destroy();
        } else {
          tunnel = true;
          socket.write("HTTP/1.1 200 OK\r\n\r\n");
        }
      });
    });
    expect(
      await fetchThrough("https://page.example./", { url: `http://127.0.0.1:${port}`, resolves: false }),
    ).toBeNull();
    expect(hello.includes("page.example")).toBe(true);
    expect(hello.includes("page.example.")).toBe(false);
  });

  test("names with inner addresses and inner literals never reach the proxy", async () => {
    const { heard, port } = await fakeProxy();
    const proxy = { url: `http://127.0.0.1:${port}`, resolves: false };
    expect(await fetchThrough("http://inner.example/", proxy)).toBeNull();
    expect(await fetchThrough("http://169.254.169.254/", proxy)).toBeNull();
    expect(heard).toEqual([]);
  });

  test("proxyResolves hands the name to the proxy, but no inner name and no inner literal", async () => {
    const { heard, port } = await fakeProxy();
    const proxy = { url: `http://127.0.0.1:${port}`, resolves: true };
    expect(await fetchThrough("http://inner.example/", proxy)).toBe("hi");
    expect(heard[0]).toContain("CONNECT inner.example:80 HTTP/1.1");
    expect(await fetchThrough("http://localhost/", proxy)).toBeNull();
    expect(await fetchThrough("http://metadata.google.internal/", proxy)).toBeNull();
    expect(await fetchThrough("http://10.0.0.1/", proxy)).toBeNull();
    expect(heard).toHaveLength(2);
  });

  test.each([
    ["refuses", "HTTP/1.1 403 Forbidden\r\n\r\n"],
    ["speaks something else", "SSH-2.0-OpenSSH\r\n\r\n"],
    ["never ends its answer", `HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(4000)}`],
  ])("a proxy that %s is an error", async (_, answer) => {
    const { port } = await fakeProxy(answer);
    expect(
      await fetchThrough("http://page.example/", { url: `http://127.0.0.1:${port}`, resolves: false }),
    ).toBeNull();
  });
});
