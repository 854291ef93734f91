/** Rule 7.2 over HTTP: bodies are counted as they come and as they unpack, and refused before more is read. */
import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { MiB, answerEmpty, bodyOfLength, json, startCounting } from "../../test/fakes/counted-bodies.ts";
import { sendWhole } from "../inference/call.ts";
import { ByteBudget } from "../lib/byte-budget.ts";
import { usualBodyBudget } from "./body-budget.ts";
import { limits } from "./limits.ts";
import { readBody, streamCounted } from "./request-body.ts";
import type { Routes } from "./route.ts";

test.each([
  [2048, 4096, 512],
  [512, 4096, 256],
  [65_536, 4096, 2048],
  [65_536, 300, 256],
])("of %i MiB of memory and %i MiB of heap, bodies may take %i MiB", (memory, heap, bodies) => {
  expect(usualBodyBudget(memory * MiB, heap * MiB)).toBe(bodies * MiB);
});

test("a body's bytes are counted while they come, and given back when its sender leaves", async () => {
  const bodies = new ByteBudget(64 * MiB);
  await using server = await startCounting(bodies, answerEmpty);
  const socket = connect(server.port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(
    `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\ncontent-length: ${20 * MiB}\r\n\r\n`,
  );
  // What is only announced is not counted: it might never come.
  socket.write(bodyOfLength(3 * MiB));
  await expect.poll(() => bodies.used, { timeout: 10_000 }).toBe(3 * MiB);
  socket.destroy();
  await expect.poll(() => bodies.used).toBe(0);
});

test("what a slow client has not taken of a long answer is counted until it has", async () => {
  const bodies = new ByteBudget(64 * MiB);
  let waitingBytes = 0;
  await using server = await startCounting(bodies, async ({ sink }) => {
    sendWhole(sink, Buffer.alloc(20 * MiB, "a"), {});
    ({ waitingBytes } = sink);
  });
  const socket = connect(server.port, "127.0.0.1");
  socket.on("error", () => {});
  socket.pause();
  socket.write(
    `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\n` +
      `content-type: application/json\r\ncontent-length: 2\r\n\r\n{}`,
  );
  await expect.poll(() => bodies.used, { timeout: 10_000 }).toBeGreaterThan(8 * MiB);
  expect(waitingBytes).toBeGreaterThan(8 * MiB);
  socket.resume();
  await expect.poll(() => bodies.used, { timeout: 10_000 }).toBe(0);
  socket.destroy();
});

test("a body stays counted while its answer is served, also after its client left", async () => {
  const bodies = new ByteBudget(64 * MiB);
  const serving = Promise.withResolvers<void>();
  const left = Promise.withResolvers<void>();
  await using server = await startCounting(bodies, async ({ sink }) => {
    sink.closed.listen(() => left.resolve());
    await serving.promise;
  });
  const leaving = new AbortController();
  const body = bodyOfLength(2 * MiB);
  const asked = server
    .fetch("/v1/messages", { method: "POST", body, headers: json, signal: leaving.signal })
    .catch(() => null);
  await expect.poll(() => bodies.used, { timeout: 10_000 }).toBe(2 * MiB);
  leaving.abort();
  await asked;
  await left.promise;
  expect(bodies.used).toBe(2 * MiB);
  serving.resolve();
  await expect.poll(() => bodies.used).toBe(0);
});

test.each([
  ["the whole process", "other", "503"],
  ["the organization", "org_acme", "429"],
])("bytes that %s may not have are not asked for", async (_, owner, status) => {
  const bodies = new ByteBudget(8 * MiB);
  await using server = await startCounting(bodies, answerEmpty);
  const others = [bodies.lease(owner), bodies.lease("third")];
  others[0]?.take(5 * MiB);
  others[1]?.take(status === "503" ? 2 * MiB : 1);
  const socket = connect(server.port, "127.0.0.1");
  let got = "";
  socket.on("data", (bytes) => (got += bytes.toString("latin1")));
  const closed = new Promise((done) => socket.once("close", done));
  socket.write(
    `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\ncontent-length: ${2 * MiB}\r\n` +
      "expect: 100-continue\r\n\r\n",
  );
  await closed;
  expect(got).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(got).toMatch(/\r\nretry-after: 1\r\n/);
  expect(got).not.toContain("100 Continue");
});

test("a body that is asked for with 100-continue is read when it may come", async () => {
  await using server = await startCounting(new ByteBudget(8 * MiB), answerEmpty);
  const socket = connect(server.port, "127.0.0.1");
  let got = "";
  socket.on("data", (bytes) => {
    got += bytes.toString("latin1");
    if (got === "HTTP/1.1 100 Continue\r\n\r\n") socket.write("{}");
  });
  socket.write(
    `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\ncontent-length: 2\r\n` +
      "expect: 100-continue\r\n\r\n",
  );
  await expect.poll(() => got).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK/);
  socket.destroy();
});

test("of a body that is stored as it comes so much is counted as its reader holds", async () => {
  const bodies = new ByteBudget(64 * MiB);
  const seen: number[] = [];
  const storing: Routes = (app) => {
    app.post("/v1/stored", { config: { access: "inference" } }, async (request) => {
      let length = 0;
      for await (const piece of streamCounted(request, limits.formBytes, MiB)) {
        length += piece.length;
        seen.push(bodies.used - Math.min(length, MiB));
      }
      return { length };
    });
  };
  await using server = await startTestServer([storing], { services: { bodies } });
  const body = bodyOfLength(5 * MiB);
  const stored = await server.fetch("/v1/stored", { method: "POST", body });
  expect(await stored.json()).toEqual({ length: 5 * MiB });
  expect(new Set(seen)).toEqual(new Set([0]));
  await expect.poll(() => bodies.used).toBe(0);
});

test.each([
  ["plain", {}, (body: Buffer) => body],
  ["gzip", { "content-encoding": "gzip" }, (body: Buffer) => gzipSync(body)],
])("a %s body that is refused holds nothing while its answer is made", async (_name, headers, encode) => {
  const bodies = new ByteBudget(8 * MiB);
  const other = bodies.lease("other");
  other.take(4 * MiB);
  let held = Infinity;
  const reading: Routes = (app) => {
    app.post("/v1/refused", { config: { access: "none" } }, async (request, reply) => {
      await readBody(request, limits.inferenceBodyBytes).catch(() => (held = bodies.used - other.bytes));
      return reply.send({});
    });
  };
  await using server = await startTestServer([reading], { services: { bodies } });
  // In chunks, so that nobody knows beforehand that it will not fit.
  const body = new Blob([new Uint8Array(encode(bodyOfLength(6 * MiB)))]).stream();
  await server.fetch("/v1/refused", { method: "POST", body, headers, duplex: "half" } as RequestInit);
  expect(held).toBe(0);
  other.release();
});

test("one body larger than the budget is read in an idle process, and refused beside another", async () => {
  const bodies = new ByteBudget(1 * MiB);
  const other = bodies.lease("other");
  await using server = await startCounting(bodies, answerEmpty);
  const ask = async (headers: Record<string, string>, body: Buffer) => {
    const response = await server.fetch("/v1/chat/completions", {
      method: "POST",
      body: body as BodyInit,
      headers: { ...json, ...headers },
    });
    return [response.status, response.headers.get("retry-after")];
  };
  expect(await ask({}, bodyOfLength(20 * MiB))).toEqual([200, null]);
  expect(await ask({ "content-encoding": "gzip" }, gzipSync(bodyOfLength(20 * MiB)))).toEqual([200, null]);
  other.take(1);
  expect(await ask({}, bodyOfLength(20 * MiB))).toEqual([503, "1"]);
  // Its length shows only as it unpacks: by then its organization has more than its quarter.
  expect(await ask({ "content-encoding": "gzip" }, gzipSync(bodyOfLength(20 * MiB)))).toEqual([429, "1"]);
  other.release();
  await expect.poll(() => bodies.used).toBe(0);
  expect(await ask({}, bodyOfLength(20 * MiB))).toEqual([200, null]);
});

test("a body is the same whatever its length and however it comes", async () => {
  const echoing: Routes = (app) => {
    app.post("/v1/echo", { config: { access: "none" } }, async (request) => {
      const body = await readBody(request, limits.inferenceBodyBytes);
      return { length: body.length, sum: body.reduce((sum, byte) => (sum * 31 + byte) % 1_000_003, 7) };
    });
  };
  await using server = await startTestServer([echoing]);
  const expected = (body: Buffer) => ({
    length: body.length,
    sum: body.reduce((sum, byte) => (sum * 31 + byte) % 1_000_003, 7),
  });
  for (const length of [0, 1, 65_536, MiB, MiB + 1, 3 * MiB + 17]) {
    const body = Buffer.from(Array.from({ length }, (_, index) => (index * index) % 251));
    const headers = { "content-type": "application/octet-stream" };
    const announced = await server.fetch("/v1/echo", { method: "POST", body, headers });
    expect(await announced.json()).toEqual(expected(body));
    const zipped = await server.fetch("/v1/echo", {
      method: "POST",
      body: length === 0 ? body : gzipSync(body),
      headers: { ...headers, "content-encoding": "gzip" },
    });
    expect(await zipped.json()).toEqual(expected(body));
  }
});
