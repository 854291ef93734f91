/** One try to deliver a message (rule 9.8): who resolves its receiver's name, and what the log is told. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { resolverAsSystem, UnresolvedName, type Resolver } from "../tools/url-guard/resolver.ts";
import { sendMessage, type SendDeps } from "./send.ts";

let receiver: Server;
let port = 0;
beforeAll(async () => {
  receiver = createServer((_incoming, response) => response.writeHead(204).end()).listen(0, "127.0.0.1");
  await once(receiver, "listening");
  ({ port } = receiver.address() as AddressInfo);
});
afterAll(() => {
  receiver.closeAllConnections();
  receiver.close();
});

const none: Resolver = { resolve: () => Promise.reject(new UnresolvedName({})) };
const loopback = ["127.0.0.0/8", "::1/128"];
const send = (name: string, allowCidrs: string[], deps: Partial<SendDeps>) =>
  sendMessage(
    { url: `http://${name}:${port}/`, credential: null, thresholds: [50], allowCidrs, allowPorts: [port] },
    {},
    "{}",
    { resolver: none, insideResolver: none, ...deps },
  );

test("a receiver inside may have a name that the system alone knows", async () => {
  expect(await send("localhost", loopback, { insideResolver: resolverAsSystem() })).toEqual({
    kind: "taken",
  });
});

test("the address that was judged is the one that is connected to", async () => {
  let asked = 0;
  const insideResolver: Resolver = {
    resolve: async () => ((asked += 1) === 1 ? ["127.0.0.1"] : ["169.254.169.254"]),
  };
  expect(await send("hooks.ns.svc", loopback, { insideResolver })).toEqual({ kind: "taken" });
  expect(asked).toBe(1);
});

test("what the system knows of a name opens nothing", async () => {
  const insideResolver: Resolver = { resolve: async () => ["127.0.0.1"] };
  expect(await send("hooks.ns.svc", ["10.0.0.0/8"], { insideResolver })).toMatchObject({ kind: "refused" });
});

test("a public receiver's name is asked of DNS alone", async () => {
  const insideResolver: Resolver = { resolve: async () => ["127.0.0.1"] };
  const reason = "name does not resolve";
  expect(await send("hooks.example", [], { insideResolver })).toEqual({ kind: "failed", reason });
});

test("the log is told the resolver's fault", async () => {
  const fault = Object.assign(new Error("getaddrinfo ENOTFOUND"), { code: "ENOTFOUND" });
  const insideResolver = resolverAsSystem(() => Promise.reject(fault));
  const reason = "name does not resolve (ENOTFOUND)";
  expect(await send("hooks.ns.svc", loopback, { insideResolver })).toEqual({ kind: "failed", reason });
});
