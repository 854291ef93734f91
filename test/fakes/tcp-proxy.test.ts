import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { TcpProxy } from "./tcp-proxy.ts";

let server: Server;
let proxy: TcpProxy;
/** What the server was sent. */
let heard: string;
beforeEach(async () => {
  heard = "";
  server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.on("data", (bytes: Buffer) => {
      heard += bytes.toString();
      socket.write(`re:${bytes.toString()}`);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  proxy = await TcpProxy.open(`redis://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
afterEach(async () => {
  await proxy.close();
  server.close();
});

/** A client of the proxy, and what it was answered. */
function client(localAddress = "127.0.0.1") {
  const port = Number(new URL(proxy.url).port);
  const socket: Socket = connect({ host: "127.0.0.1", port, localAddress });
  const seen = { answered: "", ended: false, socket };
  socket.on("data", (bytes: Buffer) => (seen.answered += bytes.toString()));
  socket.on("error", () => {});
  socket.once("close", () => (seen.ended = true));
  return seen;
}

test("what is said goes through, also late", async () => {
  const one = client();
  one.socket.write("a");
  await expect.poll(() => one.answered).toBe("re:a");
  proxy.delayMs = 50;
  const started = performance.now();
  one.socket.write("b");
  await expect.poll(() => one.answered).toBe("re:are:b");
  expect(performance.now() - started).toBeGreaterThan(95);
});

test("cut: connections break and new ones are refused, until it is connected again", async () => {
  const one = client();
  one.socket.write("a");
  await expect.poll(() => one.answered).toBe("re:a");
  proxy.cut();
  await expect.poll(() => one.ended).toBe(true);
  const two = client();
  await expect.poll(() => two.ended).toBe(true);
  proxy.reconnect();
  const three = client();
  three.socket.write("c");
  await expect.poll(() => three.answered).toBe("re:c");
});

test("a hole: nothing breaks, and what was said meanwhile arrives later", async () => {
  const one = client();
  one.socket.write("a");
  await expect.poll(() => one.answered).toBe("re:a");
  proxy.hole();
  one.socket.write("b");
  const two = client();
  two.socket.write("c");
  await once(two.socket, "connect");
  expect([heard, one.ended, two.ended]).toEqual(["a", false, false]);
  proxy.reconnect();
  await expect.poll(() => [one.answered, two.answered]).toEqual(["re:are:b", "re:c"]);
});

test("what matches is heard and not answered, on its connection alone", async () => {
  proxy.unanswered = /commit/;
  const [one, two] = [client(), client()];
  one.socket.write("commit");
  two.socket.write("x");
  await expect.poll(() => two.answered).toBe("re:x");
  await expect.poll(() => heard).toContain("commit");
  one.socket.write("y");
  await expect.poll(() => heard).toContain("y");
  expect(one.answered).toBe("");
  proxy.unanswered = null;
  proxy.reconnect();
  await expect.poll(() => one.answered).toContain("y");
});

test("a hole for answers: the other side does what it is told, and nobody hears of it", async () => {
  const one = client();
  one.socket.write("a");
  await expect.poll(() => one.answered).toBe("re:a");
  proxy.hole("answers");
  one.socket.write("b");
  await expect.poll(() => heard).toBe("ab");
  expect(one.answered).toBe("re:a");
  proxy.cut();
  await expect.poll(() => one.ended).toBe(true);
  expect(one.answered).toBe("re:a");
});

test("a hole for one address: whoever comes from another is answered", async () => {
  const [one, two] = [client(), client("127.0.0.9")];
  for (const { socket } of [one, two]) socket.write("a");
  await expect.poll(() => [one.answered, two.answered]).toEqual(["re:a", "re:a"]);
  proxy.hole("everything", (address) => address === "127.0.0.9");
  const late = client("127.0.0.9");
  await once(late.socket, "connect");
  for (const { socket } of [two, late, one]) socket.write("b");
  await expect.poll(() => one.answered).toBe("re:are:b");
  expect([two.answered, late.answered]).toEqual(["re:a", ""]);
  proxy.reconnect();
  await expect.poll(() => [two.answered, late.answered]).toEqual(["re:are:b", "re:b"]);
});

test("another store: connections of before break, and new ones lead to it", async () => {
  const other = createServer((socket) => void socket.on("error", () => {}).end("other"));
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  const one = client();
  one.socket.write("a");
  await expect.poll(() => one.answered).toBe("re:a");
  proxy.leadTo(`redis://127.0.0.1:${(other.address() as AddressInfo).port}`);
  await expect.poll(() => one.ended).toBe(true);
  const two = client();
  await expect.poll(() => two.answered).toBe("other");
  other.close();
});
