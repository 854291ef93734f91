/** Rule 13.4: what documents of issuers are read from. Nothing but loopback is ever reached. */
import { once } from "node:events";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { selfSigned } from "../../../test/fakes/certificate.ts";
import { guardedFetchJson } from "./fetch-json.ts";

const certificate = selfSigned(["127.0.0.1", "login.test"]);
let server: Server;
let port = 0;
const asked: string[] = [];
beforeAll(async () => {
  server = createServer(certificate, ({ url = "" }, response) => {
    asked.push(url);
    if (url === "/moved") response.writeHead(302, { location: "/keys" }).end();
    else if (url === "/large") response.end(`["${"x".repeat(600 * 1024)}"]`);
    else if (url === "/many") response.end(`[${"[],".repeat(9_000)}[]]`);
    else if (url === "/deep") response.end(`${"[".repeat(1_000)}${"]".repeat(1_000)}`);
    else if (url === "/text") response.end("keys");
    else response.end('{"keys":[]}');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  port = (server.address() as AddressInfo).port;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const inside = { allowCidrs: ["127.0.0.0/8"], allowPorts: [] };
/** Every name is loopback. */
const fetchJson = guardedFetchJson({ resolve: async () => ["127.0.0.1"] }, certificate.cert);
const said = async (url: string, opened: Parameters<typeof fetchJson>[1] = inside) =>
  await fetchJson(url, opened).then(
    (value) => value,
    (error: unknown) => (error instanceof Error ? error.message : "no error"),
  );

test("by address and by name, on any port of the networks that are open", async () => {
  expect(await said(`https://127.0.0.1:${port}/keys`)).toEqual({ keys: [] });
  expect(await said(`https://login.test:${port}/keys`)).toEqual({ keys: [] });
});

test.each([
  ["plain http", () => `http://127.0.0.1:${port}/keys`, inside, "not https"],
  [
    "an address that is not open",
    () => `https://127.0.0.1:${port}/keys`,
    { allowCidrs: [], allowPorts: [] },
    "not a public address",
  ],
  [
    "a name of such an address",
    () => `https://login.test:${port}/keys`,
    { allowCidrs: [], allowPorts: [] },
    "port not allowed|not a public address",
  ],
  [
    "an open port of an address that is not",
    () => `https://login.test:${port}/keys`,
    { allowCidrs: ["10.0.0.0/8"], allowPorts: [] },
    "not a public address",
  ],
  [
    "cloud metadata",
    () => "https://169.254.169.254/keys",
    { allowCidrs: ["0.0.0.0/0"], allowPorts: [] },
    "link-local",
  ],
  ["user information", () => `https://me:secret@127.0.0.1:${port}/keys`, inside, "user information"],
  ["another name than the certificate's", () => `https://other.test:${port}/keys`, inside, "altnames"],
  ["a redirect", () => `https://127.0.0.1:${port}/moved`, inside, "status 302"],
  ["more than 512 KiB", () => `https://127.0.0.1:${port}/large`, inside, "too large"],
  ["no JSON", () => `https://127.0.0.1:${port}/text`, inside, "JSON"],
])("not from %s", async (_, url, opened, message) => {
  const before = asked.length;
  expect(await said(url(), opened)).toMatch(new RegExp(message));
  if (!["status 302", "too large", "JSON"].includes(message)) expect(asked.length).toBe(before);
});

test.each([
  ["more than 10,000 values", "many", "JSON of more than 10000 values"],
  ["what is nested deep", "deep", "Nested more than 128 levels deep"],
])("not from %s, which would hold up everybody else", async (_, path, message) => {
  expect(await said(`https://127.0.0.1:${port}/${path}`)).toContain(message);
});

test("nor from a public port that only some of a name's addresses may be reached on", async () => {
  const two = guardedFetchJson({ resolve: async () => ["127.0.0.1", "93.184.215.14"] }, certificate.cert);
  await expect(two(`https://login.test:${port}/keys`, inside)).rejects.toThrow("port not allowed");
});
