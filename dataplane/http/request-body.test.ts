import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { Readable } from "node:stream";
import { setImmediate } from "node:timers/promises";
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { expect, test } from "vitest";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { ClientGone } from "./body-errors.ts";
import { readBody, readJsonBody } from "./request-body.ts";
import type { Routes } from "./route.ts";

const reading: Routes = (app) => {
  app.post("/v1/raw", { config: { access: "none" } }, async (request) => ({
    length: (await readBody(request, 100_000)).length,
  }));
  app.post("/v1/digest", { config: { access: "none" } }, async (request) => ({
    digest: digestOf(await readBody(request, 8 * 1024 * 1024)),
  }));
  app.post("/v1/json", { config: { access: "none" } }, (request) => readJsonBody(request, 100_000));
};

const digestOf = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

async function post(path: string, body: Buffer | Readable | string, headers: Record<string, string> = {}) {
  await using server = await startTestServer([reading]);
  const init = { method: "POST", body, headers, duplex: "half" };
  const response = await server.fetch(path, init as RequestInit);
  return { status: response.status, body: (await response.json()) as Record<string, never> };
}

const plain = Buffer.from("x".repeat(50_000));
const zstdFrames = Buffer.concat(
  [plain.subarray(1000), plain.subarray(0, 1000)].map((part) => zstdCompressSync(part)),
);
test.each([
  ["identity", plain],
  ["gzip", gzipSync(plain)],
  ["x-gzip", gzipSync(plain)],
  ["GZIP", gzipSync(plain)],
  ["zstd", zstdCompressSync(plain)],
  ["zstd", zstdFrames],
])("a body with content encoding %s is read", async (encoding, bytes) => {
  expect(await post("/v1/raw", bytes, { "content-encoding": encoding })).toEqual({
    status: 200,
    body: { length: 50_000 },
  });
});

test.each(["", "content-encoding: gzip\r\n"])(
  "of a client that left before its body was read nothing is waited for (%j)",
  async (header) => {
    const told = Promise.withResolvers<unknown>();
    const asked = Promise.withResolvers<void>();
    const late: Routes = (app) => {
      app.post("/v1/late", { config: { access: "none" } }, async (request) => {
        // As while its key is looked up.
        const left = once(request.raw.socket, "close");
        asked.resolve();
        await left;
        await setImmediate();
        const read = readBody(request, 100_000);
        told.resolve(await read.catch((error: unknown) => error));
        return read;
      });
    };
    await using server = await startTestServer([late]);
    const socket = connect(server.port, "127.0.0.1");
    socket.on("error", () => {});
    socket.write(`POST /v1/late HTTP/1.1\r\nhost: x\r\n${header}content-length: 100\r\n\r\nabc`);
    await asked.promise;
    socket.destroy();
    expect(await told.promise).toBeInstanceOf(ClientGone);
  },
);

const large = randomBytes(5 * 1024 * 1024);
const small = randomBytes(3_000);
test.each([
  ["large", large, large, "identity"],
  ["large, of unknown length", large, piecesOf(large, 50_000), "identity"],
  ["large, packed by gzip", large, gzipSync(large), "gzip"],
  ["large, packed by zstandard, of unknown length", large, piecesOf(zstdCompressSync(large), 70_000), "zstd"],
  ["of unknown length, a few bytes at a time", small, piecesOf(small, 3), "identity"],
  ["packed, a few bytes at a time", small, piecesOf(gzipSync(small), 3), "gzip"],
])("a body that is %s comes in as it was sent", async (_, bytes, sent, encoding) => {
  const { body } = await post("/v1/digest", sent, { "content-encoding": encoding });
  expect(body).toEqual({ digest: digestOf(bytes) });
});

function piecesOf(bytes: Buffer, size: number): Readable {
  const count = Math.ceil(bytes.length / size);
  return Readable.from(Array.from({ length: count }, (_, at) => bytes.subarray(at * size, (at + 1) * size)));
}

const bomb = Buffer.alloc(10_000_000);
test.each([
  ["more than the limit", randomBytes(100_001), "identity", 413],
  ["a bomb", gzipSync(bomb), "gzip", 413],
  ["a zstd bomb", zstdCompressSync(bomb), "zstd", 413],
  ["damaged gzip", gzipSync(plain).subarray(0, 40), "gzip", 400],
  ["not gzip at all", plain, "gzip", 400],
  ["what follows gzip data", Buffer.concat([gzipSync(plain), plain]), "gzip", 400],
  ["what follows zstd data", Buffer.concat([zstdCompressSync(plain), plain]), "zstd", 400],
  ["zstd data whose second frame is cut", zstdFrames.subarray(0, -4), "zstd", 400],
  ["an unknown encoding", plain, "snappy", 415],
  ["brotli", brotliCompressSync(plain), "br", 415],
  ["deflate", deflateSync(plain), "deflate", 415],
  ["two encodings", gzipSync(gzipSync(plain)), "gzip, gzip", 415],
  ["an encoding named like a built-in", plain, "constructor", 415],
])("%s is refused", async (_, bytes, encoding, status) => {
  expect((await post("/v1/raw", bytes, { "content-encoding": encoding })).status).toBe(status);
});

test.each([
  ["application/json", 200],
  ["application/json; charset=utf-8", 200],
  ["APPLICATION/JSON", 200],
  ["application/vnd.api+json", 200],
  ["text/plain", 415],
  ["application/x-www-form-urlencoded", 415],
  ["multipart/form-data; boundary=x", 415],
  ["nonsense", 415],
])("JSON as %s answers %i", async (type, status) => {
  expect((await post("/v1/json", "{}", { "content-type": type })).status).toBe(status);
});

test("a body without a content type counts as JSON", async () => {
  expect((await post("/v1/json", Buffer.from('{"a":1}'))).body).toEqual({ a: 1 });
});

test("of a body that was read nothing is kept by its request", async () => {
  const counts: number[] = [];
  const keeping: Routes = (app) => {
    app.post("/v1/kept", { config: { access: "none" } }, async ({ raw, bodyLease }) => {
      const count = () => raw.eventNames().reduce((sum, name) => sum + raw.listenerCount(name), 0);
      counts.push(count());
      await readBody({ raw, bodyLease }, 100_000);
      counts.push(count());
      return {};
    });
  };
  await using server = await startTestServer([keeping]);
  await server.fetch("/v1/kept", { method: "POST", body: "x".repeat(1000) });
  const [before, after] = counts;
  expect(after).toBe(before);
});
