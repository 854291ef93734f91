import { connect, type Socket } from "node:net";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../../test/fakes/test-server.ts";
import type { InferenceCall, Serve } from "../inference/call.ts";
import { Shutdown } from "../lib/shutdown.ts";
import type * as LimitsModule from "./limits.ts";
import { drain } from "./drain.ts";
import { inferenceRoutes } from "./routes/inference.ts";
import type { Routes } from "./route.ts";

vi.mock("./limits.ts", async (original) => {
  const { limits } = await original<typeof LimitsModule>();
  const quick = {
    inferenceBodyBytes: 1024 * 1024,
    headerBytes: 8 * 1024,
    headersTimeoutMs: 300,
    requestTimeoutMs: 2_500,
    connections: 40,
    bodyIdleMs: 300,
    connectionsCheckMs: 50,
    stalledClientMs: 400,
  };
  return { limits: { ...limits, ...quick } };
});

const json = { "content-type": "application/json" };
const start = (serve: Serve, shutdown?: Shutdown) =>
  startTestServer(
    [inferenceRoutes({ meter: { open: () => Promise.reject(new Error("not metered here")) }, serve })],
    shutdown === undefined ? {} : { services: { shutdown } },
  );
const echo = (call: InferenceCall) => {
  call.sink.start(200, json);
  call.sink.write(`{"length":${call.body.length}}`);
  call.sink.end();
  return Promise.resolve();
};

/** A socket that says what it got. */
async function dial(
  server: TestServer,
): Promise<{ socket: Socket; text: () => string; closed: Promise<void> }> {
  const socket = connect(server.port, "127.0.0.1");
  let got = "";
  socket.on("data", (bytes) => (got += bytes.toString("latin1")));
  socket.on("error", () => {});
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  await new Promise<void>((resolve) => socket.once("connect", () => resolve()));
  return { socket, text: () => got, closed };
}
const head = (length: number | "chunked", more = "") =>
  `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\ncontent-type: application/json\r\n` +
  `${length === "chunked" ? "transfer-encoding: chunked" : `content-length: ${length}`}\r\n${more}\r\n`;

test("headers that trickle in are cut with 408 (slow loris)", async () => {
  await using server = await start(echo);
  const { socket, text, closed } = await dial(server);
  const trickle = setInterval(() => socket.write("x"), 50);
  socket.write("POST /v1/messages HTTP/1.1\r\nx-slow: ");
  await closed;
  clearInterval(trickle);
  expect(text()).toMatch(/^HTTP\/1\.1 408 /);
  expect(text()).toMatch(/request-id: req_/);
});

test("a body that falls silent is answered 408 and its connection closed", async () => {
  await using server = await start(echo);
  const { socket, text, closed } = await dial(server);
  socket.write(`${head(100)}{`);
  await closed;
  expect(text()).toMatch(/^HTTP\/1\.1 408 /);
  expect(text()).toMatch(/connection: close/i);
});

test("a body that trickles in, never silent for long, is cut with 408 when the request's time is up", async () => {
  let served = 0;
  await using server = await start((call) => {
    served += 1;
    return echo(call);
  });
  const { socket, text, closed } = await dial(server);
  socket.write(`${head(10_000)}{`);
  const trickle = setInterval(() => socket.write(" "), 50);
  await closed;
  clearInterval(trickle);
  expect(text()).toMatch(/^HTTP\/1\.1 408 /);
  expect(served).toBe(0);
});

test("connections beyond the limit are closed at once, and those within it are served", async () => {
  await using server = await start(echo);
  const taken = await Promise.all(Array.from({ length: 40 }, () => dial(server)));
  // One that says nothing loses its place after the time of its headers.
  for (const { socket } of taken) socket.write(`${head(2)}{}`);
  for (const { text } of taken) await expect.poll(text).toMatch(/"length":2/);
  const greedy = await Promise.all(Array.from({ length: 20 }, () => dial(server)));
  await Promise.all(greedy.map(({ closed }) => closed));
  expect(greedy.map(({ text }) => text()).join("")).toBe("");
  for (const { socket } of taken) socket.write(`${head(3)}{ }`);
  for (const { socket, text } of taken) {
    await expect.poll(text).toMatch(/"length":2[^]*"length":3/);
    socket.destroy();
  }
});

test("pipelined requests are answered in order", async () => {
  await using server = await start(async (call) => {
    if (call.body.length === 2) await sleep(50);
    return echo(call);
  });
  const { socket, text } = await dial(server);
  socket.write(`${head(2)}{}${head(3)}{ }`);
  await expect.poll(text).toMatch(/"length":2\}[^]*"length":3\}/);
  socket.destroy();
});

test("a client that half-closes has left: the call is aborted and the socket closed", async () => {
  const aborted = Promise.withResolvers<void>();
  await using server = await start(async (call) => {
    await new Promise<void>((resolve) => call.sink.closed.listen(resolve));
    aborted.resolve();
  });
  const { socket, closed } = await dial(server);
  socket.write(`${head(2)}{}`);
  await sleep(50);
  socket.end();
  await Promise.all([closed, aborted.promise]);
  await expect.poll(() => server.logged.at(-1)).toMatchObject({ status: 499 });
});

test("a client that leaves before its request is complete reaches nobody", async () => {
  let served = 0;
  await using server = await start((call) => {
    served += 1;
    return echo(call);
  });
  const { socket, closed } = await dial(server);
  socket.write(`${head(100)}{`);
  await sleep(30);
  socket.destroy();
  await closed;
  await expect.poll(() => server.logged.at(-1)).toMatchObject({ status: 499, path: "/v1/messages" });
  expect(served).toBe(0);
});

test("headers beyond the limit are 431, text that is not HTTP is 400, both with a request id", async () => {
  await using server = await start(echo);
  const large = await dial(server);
  large.socket.write(head(2, `x-large: ${"y".repeat(20_000)}\r\n`));
  await large.closed;
  expect(large.text()).toMatch(/^HTTP\/1\.1 431 /);
  const garbage = await dial(server);
  garbage.socket.write("\x16\x03\x01 hello\r\n\r\n");
  await garbage.closed;
  expect(garbage.text()).toMatch(/^HTTP\/1\.1 400 [^]*request-id: req_/);
  expect(garbage.text()).toMatch(/"type":"error"/);
});

test("a request is answered, a stream to its end, though what follows it is not HTTP: a body longer than announced", async () => {
  await using server = await start(async ({ body, sink }) => {
    await sleep(50);
    sink.start(200, json);
    if (body.length > 2) {
      sink.write("first");
      await sleep(200);
    }
    sink.end(`${body.length}`);
  });
  const whole = await dial(server);
  whole.socket.write(`${head(2)}{}, and so on`);
  await whole.closed;
  expect(whole.text()).toMatch(/^HTTP\/1\.1 200 [^]*\r\nconnection: close\r\n[^]*\r\n2\r\n0\r\n\r\n$/i);

  const streamed = await dial(server);
  streamed.socket.write(`${head(3)}{ }`);
  await expect.poll(streamed.text).toMatch(/first/);
  streamed.socket.write("what is this?\r\n\r\n");
  await streamed.closed;
  expect(streamed.text()).toMatch(/^HTTP\/1\.1 200 [^]*first[^]*\r\n3\r\n0\r\n\r\n$/);
});

test("a request without a Host header, or with two, is 400 with a body and a request id, in the style of its path", async () => {
  await using server = await start(echo);
  const { socket, text } = await dial(server);
  socket.write(head(2).replace("host: x\r\n", "") + "{}");
  await expect.poll(text).toMatch(/^HTTP\/1\.1 400 [^]*request-id: req_[^]*no Host header/);
  socket.write(`${head(2, "Host: y\r\n")}{}`);
  await expect.poll(text).toMatch(/HTTP\/1\.1 400 [^]*request-id: req_[^]*more than one Host header/);
  socket.destroy();
});

test("CONNECT is refused in words, and no tunnel is opened", async () => {
  await using server = await start(echo);
  const { socket, text, closed } = await dial(server);
  socket.write("CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n");
  await closed;
  expect(text()).toMatch(/^HTTP\/1\.1 400 [^]*request-id: req_[^]*connection: close[^]*no proxy/);
});

test("CONNECT behind a request that is being answered ends both at once", async () => {
  const aborted = Promise.withResolvers<void>();
  await using server = await start(async ({ sink }) => {
    sink.start(200, json);
    sink.write("first");
    await new Promise<void>((resolve) => sink.closed.listen(resolve));
    aborted.resolve();
  });
  const { socket, text, closed } = await dial(server);
  socket.write(`${head(2)}{}`);
  await expect.poll(text).toMatch(/first/);
  socket.write("CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n");
  await Promise.all([closed, aborted.promise]);
});

test("an expectation that is not understood is 417 in the style of its path; 100-continue is served", async () => {
  await using server = await start(echo);
  const odd = await dial(server);
  odd.socket.write(`${head(2, "expect: 200-ok\r\n")}{}`);
  await expect
    .poll(odd.text)
    .toMatch(/^HTTP\/1\.1 417 [^]*request-id: req_[^]*"type":"error"[^]*100-continue/);
  odd.socket.destroy();
  const usual = await dial(server);
  usual.socket.write(head(2, "expect: 100-Continue\r\n"));
  await expect.poll(usual.text).toMatch(/^HTTP\/1\.1 100 /);
  usual.socket.write("{}");
  await expect.poll(usual.text).toMatch(/HTTP\/1\.1 200 [^]*"length":2/);
  usual.socket.destroy();
});

test.each([["content-length"], ["chunked"]])(
  "a body that is too large by %s is answered 413, not cut off, and the connection lives on",
  async (way) => {
    await using server = await start(echo);
    const { socket, text } = await dial(server);
    const size = 3 * 1024 * 1024;
    const piece = "x".repeat(64 * 1024);
    socket.write(head(way === "chunked" ? "chunked" : size));
    for (let sent = 0; sent < size; sent += piece.length) {
      socket.write(way === "chunked" ? `${piece.length.toString(16)}\r\n${piece}\r\n` : piece);
    }
    if (way === "chunked") socket.write("0\r\n\r\n");
    await expect.poll(text).toMatch(/^HTTP\/1\.1 413 [^]*request_too_large/);
    socket.write(`${head(2)}{}`);
    await expect.poll(text).toMatch(/"length":2/);
    socket.destroy();
  },
);

const megabyte = Buffer.alloc(1024 * 1024, "z");

test("a client that takes nothing of its answer is cut, and back-pressure holds the writer until then", async () => {
  const told = { blocked: false, aborted: false };
  await using server = await start(async (call) => {
    call.sink.start(200, json);
    while (!call.sink.closed.aborted) {
      if (!call.sink.write(megabyte)) {
        told.blocked = true;
        await call.sink.drained();
      }
    }
    told.aborted = true;
  });
  const { socket } = await dial(server);
  socket.write(`${head(2)}{}`);
  socket.pause();
  await expect.poll(() => told, { timeout: 5000 }).toEqual({ blocked: true, aborted: true });
  await expect
    .poll(() => server.logged.map(({ msg }) => msg))
    .toContain("cut a client that took nothing for a minute");
  socket.destroy();
});

test("so is one that takes nothing of any other answer", async () => {
  const download: Routes = (app) => {
    app.get("/v1/large", { config: { access: "none" } }, (_request, reply) =>
      reply.send(Readable.from(endless(), { objectMode: false })),
    );
  };
  let left = false;
  async function* endless(): AsyncGenerator<Buffer> {
    try {
      for (;;) yield megabyte;
    } finally {
      left = true;
    }
  }
  await using server = await startTestServer([download]);
  const { socket } = await dial(server);
  socket.write("GET /v1/large HTTP/1.1\r\nhost: x\r\n\r\n");
  socket.pause();
  await expect.poll(() => left, { timeout: 5000 }).toBe(true);
  await expect.poll(() => server.logged.at(-1)).toMatchObject({ status: 499, path: "/v1/large" });
  socket.destroy();
});

test("a client that takes its answer slowly is not cut", async () => {
  await using server = await start(async (call) => {
    call.sink.start(200, json);
    for (let n = 0; n < 16; n += 1) if (!call.sink.write(megabyte)) await call.sink.drained();
    call.sink.end();
  });
  const { socket, closed } = await dial(server);
  let got = 0;
  socket.removeAllListeners("data");
  socket.write(`${head(2, "connection: close\r\n")}{}`);
  socket.on("data", (bytes: Buffer) => {
    got += bytes.length;
    socket.pause();
    // About 1.3 s for the whole, in pauses that are shorter than the limit.
    setTimeout(() => socket.resume(), 5);
  });
  await closed;
  expect(got).toBeGreaterThan(16 * megabyte.length);
});

test("a small answer that was written whole to a client that stays idle afterwards is fine", async () => {
  await using server = await start(echo);
  const { socket, text } = await dial(server);
  socket.write(`${head(2)}{}`);
  await expect.poll(text).toMatch(/"length":2/);
  await sleep(600);
  socket.write(`${head(3)}{ }`);
  await expect.poll(text).toMatch(/"length":3/);
  socket.destroy();
});

test("draining lets a running stream end, closes idle connections, and takes no new ones", async () => {
  const go = Promise.withResolvers<void>();
  await using server = await start(async (call) => {
    call.sink.start(200, { "content-type": "text/event-stream" });
    call.sink.write("data: 1\n\n");
    await go.promise;
    call.sink.write("data: 2\n\n");
    call.sink.end();
  });
  const idle = await dial(server);
  const running = await dial(server);
  running.socket.write(`${head(2)}{}`);
  await expect.poll(running.text).toMatch(/data: 1/);
  const drained = drain(server.server, 20_000);
  await idle.closed;
  const connect = () =>
    fetch(server.url).then(
      () => "taken",
      () => "refused",
    );
  await expect.poll(connect, { timeout: 10_000 }).toBe("refused");
  go.resolve();
  expect(await drained).toBe(true);
  await running.closed;
  expect(running.text()).toMatch(/data: 2/);
});

test("a request that is on its way over an idle connection when draining begins is answered, and the last one", async () => {
  await using server = await start(echo);
  const { socket, text, closed } = await dial(server);
  socket.write(`${head(2)}{}`);
  await expect.poll(text).toMatch(/"length":2/);
  const drained = drain(server.server, 5000);
  await sleep(200);
  socket.write(`${head(3)}{ }`);
  await expect.poll(text).toMatch(/connection: close[^]*"length":3/i);
  await closed;
  expect(await drained).toBe(true);
});

test("the answer to a request that was under way when draining began closes its connection", async () => {
  const go = Promise.withResolvers<void>();
  let served = 0;
  await using server = await start(async (call) => {
    served += 1;
    await go.promise;
    await echo(call);
  });
  const { socket, text, closed } = await dial(server);
  socket.write(`${head(2)}{}`);
  await expect.poll(() => served).toBe(1);
  const drained = drain(server.server, 5000);
  go.resolve();
  await closed;
  expect(text()).toMatch(/^HTTP\/1\.1 200 [^]*\r\nconnection: close\r\n[^]*"length":2/i);
  expect(await drained).toBe(true);
});

/** Says one thing, and then nothing until its client is gone. */
async function endlessStream(call: InferenceCall): Promise<void> {
  call.sink.start(200, { "content-type": "text/event-stream" });
  call.sink.write("data: 1\n\n");
  await new Promise<void>((resolve) => call.sink.closed.listen(resolve));
}

test("a stream that does not end in time is cut when draining", async () => {
  await using server = await start(endlessStream);
  const { socket, text, closed } = await dial(server);
  socket.write(`${head(2)}{}`);
  await expect.poll(text).toMatch(/data: 1/);
  expect(await drain(server.server, 200)).toBe(false);
  await closed;
});

test("a drain that is told to hurry waits for no answer any more", async () => {
  await using server = await start(endlessStream);
  const { socket, text, closed } = await dial(server);
  socket.write(`${head(2)}{}`);
  await expect.poll(text).toMatch(/data: 1/);
  const hurry = new AbortController();
  const drained = drain(server.server, 600_000, undefined, hurry.signal);
  hurry.abort();
  expect(await drained).toBe(false);
  await closed;
});

test("what still runs when the time is over may end in words, and is logged as cut by us where it does not", async () => {
  const shutdown = new Shutdown();
  await using server = await start(async (call) => {
    call.sink.start(200, { "content-type": "text/event-stream" });
    call.sink.write("data: 1\n\n");
    await new Promise<void>((resolve) => {
      call.sink.closed.listen(resolve);
      if (call.body.length === 2) call.shutdown?.listen(resolve);
    });
    call.sink.end("data: last words\n\n");
  }, shutdown);
  const [polite, deaf] = [await dial(server), await dial(server)];
  polite.socket.write(`${head(2)}{}`);
  deaf.socket.write(`${head(3)}{ }`);
  await expect.poll(polite.text).toMatch(/data: 1/);
  await expect.poll(deaf.text).toMatch(/data: 1/);
  expect(await drain(server.server, 200, shutdown)).toBe(false);
  await Promise.all([polite.closed, deaf.closed]);
  expect(polite.text()).toMatch(/data: last words\n\n[^]*\r\n0\r\n\r\n$/);
  const told = () => server.logged.map(({ status, error }) => [status, error]);
  await expect.poll(told).toEqual([
    [200, undefined],
    [503, "unavailable"],
  ]);
});

test("serving that throws before the answer is a real status, after it a cut connection", async () => {
  await using server = await start((call) => {
    if (call.body.length === 3) call.sink.start(200, json);
    throw new Error("broken");
  });
  const early = await server.fetch("/v1/messages", { method: "POST", body: "{}", headers: json });
  expect([early.status, early.headers.has("request-id")]).toEqual([500, true]);
  const late = server.fetch("/v1/messages", { method: "POST", body: "{ }", headers: json });
  await expect(late.then((response) => response.text())).rejects.toThrow(/terminated|fetch failed/);
});
