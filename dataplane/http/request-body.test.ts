import { randomBytes } from "node:crypto";
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { expect, test } from "vitest";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { readBody, readJsonBody } from "./request-body.ts";
import type { Routes } from "./route.ts";

const reading: Routes = (app) => {
  app.post("/v1/raw", { config: { access: "none" } }, async (request) => ({
    length: (await readBody(request, 100_000)).length,
  }));
  app.post("/v1/json", { config: { access: "none" } }, (request) => readJsonBody(request, 100_000));
};

async function post(path: string, body: Buffer | string, headers: Record<string, string> = {}) {
  await using server = await startTestServer([reading]);
  const response = await server.fetch(path, { method: "POST", body: body as BodyInit, headers });
  return { status: response.status, body: (await response.json()) as Record<string, never> };
}

const plain = Buffer.from("x".repeat(50_000));
test.each([
  ["identity", plain],
  ["gzip", gzipSync(plain)],
  ["x-gzip", gzipSync(plain)],
  ["GZIP", gzipSync(plain)],
  ["zstd", zstdCompressSync(plain)],
])("a body with content encoding %s is read", async (encoding, bytes) => {
  expect(await post("/v1/raw", bytes, { "content-encoding": encoding })).toEqual({
    status: 200,
    body: { length: 50_000 },
  });
});

const bomb = Buffer.alloc(10_000_000);
test.each([
  ["more than the limit", randomBytes(100_001), "identity", 413],
  ["a bomb", gzipSync(bomb), "gzip", 413],
  ["a zstd bomb", zstdCompressSync(bomb), "zstd", 413],
  ["damaged gzip", gzipSync(plain).subarray(0, 40), "gzip", 400],
  ["not gzip at all", plain, "gzip", 400],
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
