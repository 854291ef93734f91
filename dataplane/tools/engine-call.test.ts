import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { Agent } from "undici";
import { describe, expect, test } from "vitest";
import { callEngine } from "./engine-call.ts";

/** Asks an engine that answers so twice, over the one connection that there may be: the second time long before the first is over. */
async function askTwice(answer: (response: ServerResponse) => void) {
  const engine = createServer((_, response) => answer(response));
  engine.listen(0, "127.0.0.1");
  await once(engine, "listening");
  const { port } = engine.address() as AddressInfo;
  const dispatcher = new Agent({ connections: 1 });
  try {
    const call = { method: "GET", url: `http://127.0.0.1:${port}/`, headers: {} } as const;
    const first = await callEngine(call, dispatcher, AbortSignal.timeout(60_000));
    return [first, await callEngine(call, dispatcher, AbortSignal.timeout(3_000))];
  } finally {
    await dispatcher.destroy();
    engine.closeAllConnections();
    engine.close();
  }
}

test("an answer that cannot be read keeps no connection", async () => {
  const answers = await askTwice((response) => {
    response.writeHead(200, { "content-encoding": "gzip, br, gzip" });
    response.end("x".repeat(1_000_000));
  });
  const told = { kind: "failed", status: 200, detail: "content codings not known" };
  expect(answers).toEqual([told, told]);
});

describe("an engine's error is told by its status, whatever its body is", () => {
  const half = gzipSync(randomBytes(20_000)).subarray(0, 10_000);
  test.each([
    ["nothing in gzip", (response: ServerResponse) => void response.end()],
    ["what is not gzip", (response: ServerResponse) => void response.end("not gzip")],
    ["half of a gzip", (response: ServerResponse) => void response.end(half)],
    ["what is not gzip, without an end", (response: ServerResponse) => void response.write("not gzip")],
  ])("%s", async (_, send) => {
    const answers = await askTwice((response) => {
      response.writeHead(429, { "content-encoding": "gzip" });
      response.flushHeaders();
      send(response);
    });
    const told = { kind: "failed", status: 429, detail: "status 429" };
    expect(answers).toEqual([told, told]);
  });
});

describe("an answer that would hold up everybody else is none", () => {
  const none = { kind: "failed", status: null, detail: "SmallJsonFault" };
  const list = (count: number, of: (index: number) => string) =>
    Array.from({ length: count }, (_, index) => of(index)).join(",");
  test.each<[string, string, object]>([
    ["120,000 keys", `{${list(120_000, (index) => `"${index}k":1`)}}`, none],
    ["12,000 keys", `{${list(12_000, (index) => `"${index}k":1`)}}`, none],
    ["12,000 keys of small objects", `[${list(12_000, (index) => `{"${index}k":1}`)}]`, none],
    ["12,000 empty lists", `[${list(12_000, () => "[]")}]`, none],
    ["lists within each other", "[".repeat(1_000_000) + "]".repeat(1_000_000), none],
    ["9,000 keys", `{${list(9_000, (index) => `"${index}k":1`)}}`, { kind: "json" }],
    ["a text of nothing but commas", JSON.stringify([",[{".repeat(400_000)]), { kind: "json" }],
  ])("%s", async (_, body, told) => {
    const [answer] = await askTwice((response) => void response.end(body));
    expect(answer).toMatchObject(told);
  });
});

test("a connection that breaks within a coding is no answer", async () => {
  const engine = createServer((request, response) => {
    response.writeHead(200, { "content-encoding": "gzip" });
    response.write(gzipSync(randomBytes(20_000)).subarray(0, 10_000), () => request.socket.destroy());
  });
  engine.listen(0, "127.0.0.1");
  await once(engine, "listening");
  const { port } = engine.address() as AddressInfo;
  const dispatcher = new Agent();
  try {
    const call = { method: "GET", url: `http://127.0.0.1:${port}/`, headers: {} } as const;
    expect(await callEngine(call, dispatcher, AbortSignal.timeout(60_000))).toMatchObject({
      kind: "failed",
      status: null,
    });
  } finally {
    await dispatcher.destroy();
    engine.close();
  }
});

test("an engine that sends interim answers alone is not listened to", async () => {
  const engine = createServer(({ socket }) => {
    socket.write("HTTP/1.1 102 Processing\r\n\r\n".repeat(1_001));
  });
  engine.listen(0, "127.0.0.1");
  await once(engine, "listening");
  const { port } = engine.address() as AddressInfo;
  const dispatcher = new Agent();
  try {
    const call = { method: "GET", url: `http://127.0.0.1:${port}/`, headers: {} } as const;
    const told = { kind: "failed", status: null, detail: "Error" };
    expect(await callEngine(call, dispatcher, AbortSignal.timeout(5_000))).toEqual(told);
  } finally {
    await dispatcher.destroy();
    engine.close();
  }
});

test("the time of a search is over also while no connection to its engine stands", async () => {
  const dispatcher = new Agent({
    connect: () => {
      // As where a firewall drops what is sent there.
    },
  });
  try {
    const call = { method: "GET", url: "http://127.0.0.1:9/", headers: {} } as const;
    const asked = performance.now();
    await expect(callEngine(call, dispatcher, AbortSignal.timeout(200))).rejects.toThrow("timeout");
    expect(performance.now() - asked).toBeLessThan(5_000);
  } finally {
    await dispatcher.destroy();
  }
}, 10_000);
