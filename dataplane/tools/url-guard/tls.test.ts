import { once } from "node:events";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { selfSigned } from "../../../test/fakes/certificate.ts";
import { egressRules } from "./address.ts";
import { guardedDispatcher } from "./dispatcher.ts";

const identity = selfSigned(["site.example", "*.wild.example"]);
const stranger = selfSigned(["site.example"]);
let server: Server;
let port = 0;

beforeAll(async () => {
  server = createServer(identity, (asked, response) => response.end(asked.headers.host));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  port = (server.address() as AddressInfo).port;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

async function get(host: string, ca: string | null): Promise<string> {
  const dispatcher = guardedDispatcher({
    rules: egressRules({ allowCidrs: ["127.0.0.1/32"], allowPorts: [port] }),
    resolver: { resolve: () => Promise.resolve(["127.0.0.1"]) },
    proxy: null,
    signal: AbortSignal.timeout(5_000),
    ...(ca === null ? {} : { ca }),
  });
  try {
    const { body } = await request(`https://${host}:${port}/`, { dispatcher });
    return await body.text();
  } catch (error) {
    return error instanceof Error && "code" in error ? String(error.code) : "failed";
  } finally {
    await dispatcher.destroy();
  }
}

describe("TLS to a judged address", () => {
  test.each(["site.example", "site.example.", "a.wild.example"])(
    "the certificate of %s is checked and passes",
    async (host) => {
      expect(await get(host, identity.cert)).toBe(`${host}:${port}`);
    },
  );
  test.each([
    ["another name", "other.example", identity.cert, "ERR_TLS_CERT_ALTNAME_INVALID"],
    ["an address instead of the name", "127.0.0.1", identity.cert, "ERR_TLS_CERT_ALTNAME_INVALID"],
    ["an unknown authority", "site.example", null, "DEPTH_ZERO_SELF_SIGNED_CERT"],
    ["a stranger's authority", "site.example", stranger.cert, "DEPTH_ZERO_SELF_SIGNED_CERT"],
  ])("%s is refused", async (_, host, ca, code) => {
    expect(await get(host, ca)).toBe(code);
  });
  test("NODE_TLS_REJECT_UNAUTHORIZED does not switch the check off", async () => {
    const before = process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
    process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
    try {
      expect(await get("site.example", null)).toBe("DEPTH_ZERO_SELF_SIGNED_CERT");
    } finally {
      if (before === undefined) delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
      else process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = before;
    }
  });
});
