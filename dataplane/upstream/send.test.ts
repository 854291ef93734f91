import { createServer, type Server, type Socket } from "node:net";
import { once } from "node:events";
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import type { Dispatcher } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { collectAll } from "../lib/garbage.ts";
import { newUpstreamDispatcher } from "./dispatcher.ts";
import { CallError, UpstreamCall, type CallOptions } from "./send.ts";

let dispatcher: Dispatcher;
const servers: Server[] = [];

beforeAll(() => {
  dispatcher = newUpstreamDispatcher();
});
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});
afterAll(() => dispatcher.destroy());

/** A server that does with each request (once its head has come) what `answer` says. */
async function serverThat(answer: (socket: Socket) => void): Promise<string> {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", () => answer(socket));
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
}

function send(origin: string, more: Partial<CallOptions> = {}): UpstreamCall {
  const options = {
    origin,
    path: "/v1/x",
    headers: ["content-type", "application/json"],
    body: Buffer.from("{}"),
    connectMs: 300,
    firstByteMs: 300,
    idleMs: null,
    ...more,
  };
  return new UpstreamCall(options).start(dispatcher);
}

async function faultOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  return error instanceof CallError ? error.fault : String(error);
}

const hint = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
const ok = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
const sized = (body: Buffer | string, headers = "") =>
  Buffer.concat([
    Buffer.from(`${ok}${headers}content-length: ${Buffer.byteLength(body)}\r\n\r\n`),
    Buffer.from(body),
  ]);

describe("ways to fail", () => {
  test.each<[string, (socket: Socket) => void, string]>([
    ["closed without a word", (socket) => void socket.end(), "connect"],
    ["reset", (socket) => void socket.resetAndDestroy(), "connect"],
    ["no HTTP", (socket) => void socket.end("SSH-2.0-OpenSSH_9.9\r\n"), "garbage"],
    ["headers without end", (socket) => void socket.write(`${ok}x: ${"y".repeat(100_000)}`), "garbage"],
    ["interim answers without end", (socket) => void socket.write(hint.repeat(1_001)), "garbage"],
    ["silence", () => {}, "first_byte_timeout"],
    [
      "headers and then silence",
      (socket) => void socket.write(`${ok}content-length: 5\r\n\r\n`),
      "first_byte_timeout",
    ],
    ["closed after the headers", (socket) => void socket.end(`${ok}content-length: 5\r\n\r\n`), "cut"],
    [
      "a redirect is an answer, not an errand",
      (socket) =>
        void socket.end(
          "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
        ),
      "302",
    ],
  ])("%s", async (_name, answer, expected) => {
    const call = send(await serverThat(answer));
    const head = call.head.then(({ status }) => String(status));
    expect(await head.catch((error: CallError) => error.fault)).toBe(expected);
  });

  test("nobody listens, no such name, no TLS", async () => {
    expect(await faultOf(send("http://127.0.0.1:1").head)).toBe("connect");
    expect(await faultOf(send("http://nowhere.invalid", { connectMs: 5_000 }).head)).toBe("connect");
    const plain = await serverThat((socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    expect(await faultOf(send(plain.replace("http:", "https:")).head)).toBe("connect");
  });

  test("a connection that takes too long to be made", async () => {
    // The listening socket of a server that accepts nothing: handshakes of TLS never end.
    const silent = await serverThat(() => {});
    const started = performance.now();
    expect(await faultOf(send(silent.replace("http:", "https:"), { connectMs: 80 }).head)).toBe("connect");
    expect(performance.now() - started).toBeLessThan(1_000);
  });

  test("a body that breaks off says how much of it came", async () => {
    const origin = await serverThat((socket) => {
      socket.write(`${ok}content-length: 50\r\n\r\n0123456789`);
      setTimeout(() => socket.resetAndDestroy(), 20);
    });
    const call = send(origin);
    await call.head;
    await expect(call.whole(1000)).rejects.toMatchObject({ fault: "cut", received: 10 });
  });

  test("a body beyond the limit is left", async () => {
    const origin = await serverThat(
      (socket) =>
        void socket.write(`${ok}transfer-encoding: chunked\r\n\r\n${"8\r\n12345678\r\n".repeat(2000)}`),
    );
    const call = send(origin);
    await call.head;
    expect(await faultOf(call.whole(10_000))).toBe("too_large");
  });

  test("a whole one for which there is no room is left, with why; its beginning needs none", async () => {
    const origin = await serverThat(
      (socket) => void socket.write(`${ok}content-length: 3000000\r\n\r\n${"a".repeat(200_000)}`),
    );
    const call = send(origin);
    await call.head;
    const none = new Error("no room");
    let taken = 0;
    const whole = call.whole(4_000_000, (bytes) => {
      taken += bytes;
      if (taken > 100_000) throw none;
    });
    await expect(whole).rejects.toMatchObject({ fault: "exhausted", cause: none });
    const error = (await whole.catch((thrown: unknown) => thrown)) as CallError;
    expect(taken).toBe(error.received - 64 * 1024);
    expect(error.begun).toHaveLength(error.received);
  });

  test("a stream that stands still; not so one that its reader paused", async () => {
    const origin = await serverThat((socket) => {
      socket.write(`${ok}transfer-encoding: chunked\r\n\r\n2\r\nab\r\n`);
    });
    const call = send(origin, { idleMs: 60 });
    await call.head;
    const { promise, resolve } = Promise.withResolvers<string>();
    call.read({ data: () => {}, end: () => resolve("end"), fail: resolve });
    call.pause();
    expect(
      await Promise.race([promise, new Promise((late) => setTimeout(() => late("still paused"), 150))]),
    ).toBe("still paused");
    call.resume();
    expect(await promise).toBe("idle");
  });
});

// undici's pause holds from the next chunk on, or at once where it was paused before.
test.each([
  ["little", 1, "c"],
  ["more than is kept unread", 300_000, "b"],
])("a reader that pauses while it gets what came before it stays paused (%s)", async (_much, size, held) => {
  const { promise: asked, resolve: ask } = Promise.withResolvers<Socket>();
  const call = send(await serverThat(ask));
  const upstream = await asked;
  upstream.write(`${ok}transfer-encoding: chunked\r\n\r\n${size.toString(16)}\r\n${"a".repeat(size)}\r\n`);
  await call.head;
  await expect.poll(() => call.received).toBeGreaterThanOrEqual(Math.min(size, 256 * 1024));
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  let text = "";
  call.read({
    data: (chunks) => {
      if (text === "") call.pause();
      text += Buffer.concat(chunks).toString();
    },
    end,
    fail: () => {},
  });
  upstream.write("1\r\nb\r\n");
  if (held === "c") await expect.poll(() => text).toBe("ab");
  upstream.write("1\r\nc\r\n0\r\n\r\n");
  await sleep(120);
  expect(text).not.toContain(held);
  call.resume();
  await ended;
  expect(text).toBe(`${"a".repeat(size)}bc`);
});

test("a stream that nobody reads yet is not idle while it goes on", async () => {
  const origin = await serverThat((socket) => {
    socket.write(`${ok}transfer-encoding: chunked\r\n\r\n`);
    const more = setInterval(() => socket.write("1\r\n.\r\n"), 20);
    setTimeout(() => {
      clearInterval(more);
      socket.write("0\r\n\r\n");
    }, 700);
  });
  const call = send(origin, { idleMs: 200 });
  await call.head;
  await sleep(500);
  const { promise, resolve } = Promise.withResolvers<string>();
  call.read({ data: () => {}, end: () => resolve("end"), fail: resolve });
  expect(await promise).toBe("end");
});

describe("a moment without a processor is not the upstream's slowness", () => {
  /** In a thread of its own: 30 ms after a request the first byte, 60 ms later the last one. */
  const upstream = `
    const { parentPort } = require("node:worker_threads");
    const server = require("node:net").createServer((socket) => socket.on("data", () => {
      parentPort.postMessage("asked");
      setTimeout(() => socket.write("HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\na"), 30);
      setTimeout(() => socket.write("b"), 90);
    }));
    server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
  `;
  const block = (ms: number) => {
    const until = performance.now() + ms;
    while (performance.now() < until);
  };

  test.each([
    ["before the first byte", { firstByteMs: 100, idleMs: 5_000 }, "asked"],
    ["in a stream", { firstByteMs: 5_000, idleMs: 100 }, "head"],
  ] as const)("%s", async (_name, limits, blockedFrom) => {
    const worker = new Worker(upstream, { eval: true });
    const [port] = (await once(worker, "message")) as [number];
    const asked = once(worker, "message");
    const call = send(`http://127.0.0.1:${port}`, { connectMs: 5_000, ...limits });
    await (blockedFrom === "asked" ? asked : call.head);
    block(400);
    expect((await call.whole(100)).toString()).toBe("ab");
    await worker.terminate();
  });
});

describe("compression that nobody asked for", () => {
  const text = JSON.stringify({ text: "word ".repeat(5000) });
  test.each([
    ["gzip", gzipSync(text)],
    ["GZip", gzipSync(text)],
    ["deflate", deflateSync(text)],
    ["br", brotliCompressSync(text)],
    ["zstd", zstdCompressSync(text)],
    ["deflate", deflateRawSync(text)],
    ["gzip, br", brotliCompressSync(gzipSync(text))],
    ["GZIP,\tdeflate", deflateRawSync(gzipSync(text))],
    ["identity, gzip", gzipSync(text)],
  ])("rule 1.2: %s is read", async (encoding, packed) => {
    const call = send(
      await serverThat((socket) => void socket.write(sized(packed, `content-encoding: ${encoding}\r\n`))),
    );
    await call.head;
    expect((await call.whole(100_000)).toString()).toBe(text);
  });

  test.each([
    ["deflate", deflateSync(text)],
    ["deflate", deflateRawSync(text)],
    ["deflate, deflate", deflateSync(deflateSync(text))],
  ])("%s with a byte behind it ends, however late the answer does", async (encoding, packed) => {
    const body = Buffer.concat([packed, Buffer.from("\n")]);
    const call = send(
      await serverThat((socket) => {
        const head = `${ok}content-encoding: ${encoding}\r\ntransfer-encoding: chunked\r\n\r\n`;
        socket.write(`${head}${body.length.toString(16)}\r\n`);
        socket.write(body);
        setTimeout(() => socket.write("\r\n0\r\n\r\n"), 50);
      }),
    );
    await call.head;
    expect((await call.whole(100_000)).toString()).toBe(text);
  });

  test("what does not decompress is garbage, what ends too early too, and a bomb is too large", async () => {
    const bad = send(
      await serverThat((socket) => void socket.write(sized("not gzip at all", "content-encoding: gzip\r\n"))),
    );
    expect(await faultOf(bad.head)).toBe("garbage");
    const half = gzipSync(text).subarray(0, 40);
    const short = send(
      await serverThat((socket) => void socket.write(sized(half, "content-encoding: gzip\r\n"))),
    );
    expect(await faultOf(short.head.then(() => short.whole(100_000)))).toBe("garbage");
    const twice = brotliCompressSync(gzipSync(text).subarray(0, 40));
    const shortInside = send(
      await serverThat((socket) => void socket.write(sized(twice, "content-encoding: gzip, br\r\n"))),
    );
    expect(await faultOf(shortInside.head.then(() => shortInside.whole(100_000)))).toBe("garbage");
    const bare = deflateRawSync(text).subarray(0, 40);
    const shortBare = send(
      await serverThat((socket) => void socket.write(sized(bare, "content-encoding: deflate\r\n"))),
    );
    expect(await faultOf(shortBare.head.then(() => shortBare.whole(100_000)))).toBe("garbage");
    const bomb = gzipSync(Buffer.alloc(5_000_000));
    const large = send(
      await serverThat((socket) => void socket.write(sized(bomb, "content-encoding: gzip\r\n"))),
    );
    expect(await faultOf(large.head.then(() => large.whole(100_000)))).toBe("too_large");
  });

  test.each([
    ["deflate", deflateRawSync(Buffer.alloc(20_000_000))],
    ["gzip, deflate", deflateSync(gzipSync(Buffer.alloc(20_000_000)))],
  ])("what nobody reads of %s is not unpacked", async (encoding, packed) => {
    const call = send(
      await serverThat((socket) => void socket.write(sized(packed, `content-encoding: ${encoding}\r\n`))),
    );
    await call.head;
    await sleep(100);
    expect(call.received).toBeLessThan(1_000_000);
    expect((await call.whole(30_000_000)).length).toBe(20_000_000);
  });
});

test("rule 2.14: a byte order mark before a whole answer is no part of it, however it comes", async () => {
  const origin = await serverThat((socket) => {
    const [first, rest] = [Buffer.from([0xef]), Buffer.from([0xbb, 0xbf, 0x7b, 0x7d])];
    socket.write(Buffer.concat([Buffer.from(`${ok}content-length: 5\r\n\r\n`), first]));
    setTimeout(() => socket.write(rest), 10);
  });
  const call = send(origin);
  await call.head;
  expect((await call.whole(10)).toString()).toBe("{}");
});

test("rule 7.3: a large one with such a mark has its memory for itself, and so passes between threads without a copy", async () => {
  const text = "a".repeat(2_000_000);
  const origin = await serverThat((socket) => void socket.write(sized(`\ufeff${text}`)));
  const call = send(origin);
  await call.head;
  const body = await call.whole(3_000_000);
  expect(body.equals(Buffer.from(text))).toBe(true);
  expect(body.buffer.byteLength).toBe(text.length);
});

test("a request that HTTP cannot carry says nothing about the upstream", async () => {
  expect(await faultOf(send("http://127.0.0.1:1", { headers: ["x-a", "b\r\nc: d"] }).head)).toBe(
    "unsendable",
  );
});

test("what came before anybody read is not lost, and an aborted call says why", async () => {
  const origin = await serverThat((socket) => void socket.write(sized("hello")));
  const call = send(origin);
  await call.head;
  await new Promise((later) => setTimeout(later, 30));
  expect((await call.whole(10)).toString()).toBe("hello");
  call.abort("cancelled");
  const other = send(await serverThat(() => {}));
  other.abort("cancelled");
  expect(await faultOf(other.head)).toBe("cancelled");
});

describe("a body as it is handed over", () => {
  const chunks = (text: string) => Array.from(text, (letter) => `1\r\n${letter}\r\n`).join("");
  const begun = `${ok}transfer-encoding: chunked\r\n\r\n${chunks("a")}`;

  /** Hands over "a", then each packet when the one before was handed over; `take` says what the reader does with them. */
  async function handed(packets: readonly string[], take: (text: string, call: UpstreamCall) => void) {
    const told: string[] = [];
    const upstream = Promise.withResolvers<Socket>();
    const origin = await serverThat((socket) => {
      socket.write(begun);
      upstream.resolve(socket);
    });
    const call = send(origin);
    await call.head;
    const socket = await upstream.promise;
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const last = (word: string) => {
      told.push(word);
      end();
    };
    const left = [...packets];
    call.read({
      data: (pieces) => {
        told.push(pieces.join(" "));
        const next = left.shift();
        if (next !== undefined) socket.write(next);
        take(pieces.join(""), call);
      },
      end: () => last("end"),
      fail: last,
    });
    await over;
    // Whatever would come too late, or a second time.
    await sleep(30);
    return told;
  }

  test("chunks of one packet at once", async () => {
    const packets = [chunks("bc"), `${chunks("def")}0\r\n\r\n`];
    expect(await handed(packets, () => {})).toEqual(["a", "b c", "d e f", "end"]);
  });

  test("none is lost to a failure behind it in the same packet", async () => {
    expect(await handed([`${chunks("bc")}nonsense\r\n`], () => {})).toEqual(["a", "b c", "cut"]);
  });

  test.each([
    ["in the middle", chunks("bc")],
    ["at the end", `${chunks("bc")}0\r\n\r\n`],
    ["before a failure", `${chunks("bc")}nonsense\r\n`],
  ])("a reader that aborts %s hears of that alone, once", async (_where, packet) => {
    const aborts = (text: string, call: UpstreamCall) => text === "bc" && call.abort("cancelled");
    expect(await handed([packet, chunks("d")], aborts)).toEqual(["a", "b c", "cancelled"]);
  });

  test.each([
    ["what came before it read", "a", [chunks("bc")], ["a", "garbage"]],
    ["what comes later", "bc", [chunks("bc"), chunks("d")], ["a", "b c", "garbage"]],
    ["the last", "bc", [`${chunks("bc")}0\r\n\r\n`], ["a", "b c", "garbage"]],
  ] as const)(
    "a reader that throws at %s ends its call, and nothing else",
    async (_when, at, packets, told) => {
      const throws = (text: string) => {
        if (text === at) throw new TypeError("a bug");
      };
      expect(await handed(packets, throws)).toEqual(told);
    },
  );

  test("a whole one of very many chunks that waited for its reader", async () => {
    const origin = await serverThat(
      (socket) => void socket.write(`${begun}${chunks("a").repeat(199_999)}0\r\n\r\n`),
    );
    const call = send(origin);
    await call.head;
    await expect.poll(() => call.received).toBe(200_000);
    expect((await call.whole(200_000)).length).toBe(200_000);
  });
});

/** A call that has had its answer's headers, and whose bytes the test brings. */
function answeredCall() {
  const call = new UpstreamCall({
    origin: "http://127.0.0.1:1",
    path: "/",
    headers: [],
    body: Buffer.from("{}"),
    connectMs: 10_000,
    firstByteMs: null,
    idleMs: null,
  });
  const controller = { abort: () => {}, pause: () => {}, resume: () => {} };
  const at = controller as unknown as Dispatcher.DispatchController;
  call.onRequestStart(at);
  call.onResponseStart(at, 200, {});
  return { call, at };
}

test("an answer in chunks of a byte takes no memory for each of them", async () => {
  const { call, at } = answeredCall();
  const whole = call.whole(1_000);
  /** As undici hands them over: Buffers of their own. */
  const bring = (text: string): WeakRef<Buffer>[] =>
    Array.from(text, (letter) => {
      const chunk = Buffer.from(letter);
      call.onResponseData(at, chunk);
      return new WeakRef(chunk);
    });
  const [, ...later] = bring("abcdefgh");
  await expect
    .poll(() => {
      collectAll();
      return later.filter((chunk) => chunk.deref() !== undefined).length;
    })
    .toBe(0);
  bring("ij");
  call.onResponseEnd();
  expect((await whole).toString()).toBe("abcdefghij");
});

test("a stream in chunks of a byte whose client has left is not read on as far as others", () => {
  const { call, at } = answeredCall();
  const faults: string[] = [];
  call.read({ data: () => {}, end: () => {}, fail: (fault) => faults.push(fault) });
  const byte = Buffer.from("a");
  for (let chunks = 0; chunks < 20_000; chunks += 1) call.onResponseData(at, byte);
  expect(faults).toEqual([]);
  call.drain();
  for (let chunks = 0; chunks < 16_384; chunks += 1) call.onResponseData(at, byte);
  expect(faults).toEqual([]);
  call.onResponseData(at, byte);
  expect(faults).toEqual(["cancelled"]);
});

describe("behind a complete answer", () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;

  test("nothing is kept of an upstream that has ended it", async () => {
    const call = send(await serverThat((socket) => void socket.write(sized("{}"))), { idleMs: 300 });
    await call.head;
    await call.whole(10);
    const before = timers();
    call.linger();
    expect(timers()).toBe(before);
  });

  test("an upstream that does not end it is cut after a second, whatever it still sends", async () => {
    const origin = await serverThat((socket) => {
      socket.write(`${ok}transfer-encoding: chunked\r\n\r\n`);
      const more = setInterval(() => socket.write("1\r\n.\r\n"), 50);
      socket.on("close", () => clearInterval(more));
    });
    const { promise, resolve } = Promise.withResolvers<string>();
    const call = send(origin, { idleMs: 300 });
    await call.head;
    call.read({ data: () => {}, end: () => resolve("end"), fail: resolve });
    const startedAt = performance.now();
    call.linger();
    expect(await promise).toBe("cut");
    expect(performance.now() - startedAt).toBeGreaterThan(900);
    expect(performance.now() - startedAt).toBeLessThan(2_500);
  });
});

test("connections are kept and used again", async () => {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on("data", () => void socket.write(sized("{}")));
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  for (let time = 0; time < 5; time += 1) {
    const call = send(`http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`);
    await call.head;
    await call.whole(10);
  }
  // The second one: a request made in the very turn in which an answer ends does not wait for its connection.
  expect(connections).toBeLessThanOrEqual(2);
});

describe("rule 7.3: what an upstream sends besides contents is bounded by these", () => {
  const chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

  test.each([
    ["blank lines before an answer", "", "\r\n"],
    ["a chunk's extension without an end", `${chunked}1;a=`, "a"],
    ["chunks of one byte with extensions", chunked, `1;${"a".repeat(60)}\r\na\r\n`],
  ])("%s", async (_, head, endless) => {
    let sentBytes = 0;
    const origin = await serverThat((socket) => {
      const packet = Buffer.from(endless.repeat(Math.ceil((64 * 1024) / endless.length)));
      socket.write(head);
      const more = (error?: Error | null) => {
        if (error || socket.destroyed) return;
        sentBytes += packet.length;
        socket.write(packet, more);
      };
      more();
    });
    const call = send(origin, { firstByteMs: 20_000 });
    const whole = call.head.then(() => call.whole(64 * 1024 * 1024));
    expect(await faultOf(whole)).toMatch(/^(garbage|cut)$/);
    expect(sentBytes).toBeLessThan(32 * 1024 * 1024);
  });

  test("many answers of a kept connection, with long heads and small chunks, are none of it", async () => {
    const event = `data: ${"x".repeat(30)}\n\n`;
    const chunk = `${event.length.toString(16)}\r\n${event}\r\n`;
    const answer = `HTTP/1.1 200 OK\r\nx: ${"h".repeat(40_000)}\r\ntransfer-encoding: chunked\r\n\r\n${chunk.repeat(20)}0\r\n\r\n`;
    let connections = 0;
    const origin = await serverThat((socket) => socket.write(answer));
    servers.at(-1)?.on("connection", () => (connections += 1));
    for (let n = 0; n < 300; n += 1) {
      const call = send(origin, { firstByteMs: 20_000 });
      await call.head;
      expect((await call.whole(1024 * 1024)).length).toBe(20 * event.length);
    }
    // The next call may come before the connection is free again.
    expect(connections).toBeLessThan(5);
  });
});
