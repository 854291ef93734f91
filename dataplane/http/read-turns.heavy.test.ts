import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { startTestServer, statusOn, upload } from "../../test/fakes/test-server.ts";
import { ApiError } from "../lib/api-error.ts";
import { ByteBudget } from "../lib/byte-budget.ts";
import { ConnectionShares } from "./connection-shares.ts";
import { limits } from "./limits.ts";
import { ReadTurns } from "./read-turns.ts";
import { readBody } from "./request-body.ts";
import type { Routes } from "./route.ts";
import { inferenceRoutes } from "./routes/inference.ts";

const MiB = 1024 * 1024;

/** Clients of a bare server, and what it has read of each. */
async function serve(handle: RequestListener) {
  const connections: Socket[] = [];
  const server = createServer(handle).on("connection", (socket) => connections.push(socket));
  server.listen(0, "127.0.0.1");
  await expect.poll(() => server.listening).toBe(true);
  const { port } = server.address() as AddressInfo;
  return {
    port,
    connections,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

test("connections that wait for turns share one rate, each as much as the others", async () => {
  const turns = new ReadTurns(8 * MiB);
  await using server = await serve((request) => {
    request.on("data", () => turns.wait(request.socket));
  });
  const clients = Array.from({ length: 8 }, () => upload(server.port, "/", 64 * MiB));
  const read = () => server.connections.map(({ bytesRead }) => bytesRead);
  const sum = () => read().reduce((all, one) => all + one, 0);
  await expect.poll(() => server.connections.length).toBe(8);
  await expect.poll(sum).toBeGreaterThan(MiB);
  const [from, at] = [sum(), performance.now()];
  await sleep(1_000);
  const perSecond = (sum() - from) / ((performance.now() - at) / 1000);
  // Each tick may read one piece more than is left of its share; a busy machine skips some.
  expect(perSecond).toBeLessThan(16 * MiB);
  expect(perSecond).toBeGreaterThan(0.25 * MiB);
  expect(Math.max(...read()) - Math.min(...read())).toBeLessThan(MiB);
  for (const client of clients) client.destroy();
});

test("connections of two organizations share the rate by organization, however many one has", async () => {
  const turns = new ReadTurns(8 * MiB);
  const shares = new ConnectionShares();
  const owned = new Map<string, Socket[]>();
  await using server = await serve(({ socket, url = "" }, response) => {
    shares.take(socket, url);
    owned.set(url, [...(owned.get(url) ?? []), socket]);
    response.req.on("data", () => turns.wait(socket));
  });
  const clients = ["/a", "/a", "/a", "/a", "/a", "/a", "/a", "/b"].map((path) =>
    upload(server.port, path, 64 * MiB),
  );
  await expect.poll(() => server.connections.length).toBe(8);
  const readOf = (owner: string) =>
    (owned.get(owner) ?? []).reduce((sum, { bytesRead }) => sum + bytesRead, 0);
  await expect.poll(() => readOf("/a")).toBeGreaterThan(MiB);
  const from = [readOf("/a"), readOf("/b")] as const;
  await sleep(1_000);
  const [many, one] = [readOf("/a") - from[0], readOf("/b") - from[1]];
  expect(one / many).toBeGreaterThan(0.5);
  for (const client of clients) client.destroy();
});

test.each([
  ["plain", (body: Buffer) => body, {}],
  ["compressed", (body: Buffer) => gzipSync(body), { "content-encoding": "gzip" }],
])("large bodies, %s, share one rate, and small ones pass them by", async (_name, encode, headers) => {
  const reading: Routes = (app) => {
    app.post("/v1/read", { config: { access: "none" } }, async (request) => {
      const { length } = await readBody(request, limits.inferenceBodyBytes);
      return { length };
    });
  };
  await using server = await startTestServer([reading]);
  const send = async (bytes: number) => {
    const body = encode(Buffer.alloc(bytes, 0x20));
    const response = await server.fetch("/v1/read", { method: "POST", body: new Uint8Array(body), headers });
    return (await response.json()) as unknown;
  };
  const large = 32 * MiB;
  const started = performance.now();
  let small = 0;
  const sent = Promise.all(Array.from({ length: 4 }, () => send(large)));
  const waiting = new Set([sent]);
  void sent.finally(() => waiting.clear());
  while (waiting.size > 0) {
    expect(await send(64 * 1024)).toEqual({ length: 64 * 1024 });
    small += 1;
  }
  expect(await sent).toEqual(Array.from({ length: 4 }, () => ({ length: large })));
  const seconds = (performance.now() - started) / 1000;
  expect((4 * (large - limits.quickBodyBytes)) / seconds).toBeLessThan(2 * limits.largeBodyBytesPerSecond);
  expect(small).toBeGreaterThan(10);
});

test("a large body is read before the later ones of an organization that sends many", async () => {
  const done: string[] = [];
  const reading: Routes = (app) => {
    app.post("/v1/read", { config: { access: "none" } }, async (request) => {
      const owner = String(request.headers["x-owner"]);
      const bodyLease = bodies.lease(owner);
      await readBody({ raw: request.raw, bodyLease }, limits.inferenceBodyBytes);
      bodyLease.release();
      done.push(owner);
      return {};
    });
  };
  const bodies = new ByteBudget(1024 ** 3);
  await using server = await startTestServer([reading]);
  const send = (owner: string, bytes: number) => {
    const body = new Uint8Array(Buffer.alloc(bytes, 0x20));
    return server.fetch("/v1/read", { method: "POST", body, headers: { "x-owner": owner } });
  };
  const many = Array.from({ length: 16 }, () => send("a", 32 * MiB));
  // More has come of them than their first MiB.
  await expect.poll(() => bodies.used, { timeout: 10_000 }).toBeGreaterThan(32 * MiB);
  await send("b", 4 * MiB);
  expect(done.filter((owner) => owner === "a").length).toBeLessThan(4);
  await Promise.all(many);
});

const meter = { open: () => Promise.reject(new Error("not metered here")) };

test("what follows a refusal is read slowly, whoever sends it", async () => {
  await using server = await startTestServer([
    inferenceRoutes({ meter, serve: () => Promise.reject(new ApiError("insufficient_credit", "no")) }),
  ]);
  const bytes = limits.inferenceBodyBytes + 64 * MiB;
  const clients = Array.from({ length: 8 }, () => upload(server.port, "/v1/messages", bytes));
  expect(new Set(await Promise.all(clients.map(statusOn)))).toEqual(new Set(["413"]));
  const sum = () => [...server.server.connections].reduce((all, { bytesRead }) => all + bytesRead, 0);
  const [from, at] = [sum(), performance.now()];
  await sleep(1_000);
  const perSecond = (sum() - from) / ((performance.now() - at) / 1000);
  expect(perSecond).toBeLessThan(2 * limits.slowReadBytesPerSecond);
  for (const client of clients) client.destroy();
});
