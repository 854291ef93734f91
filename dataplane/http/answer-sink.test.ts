import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { AnswerBytes } from "../inference/answer/answer-bytes.ts";
import { HttpAnswerSink } from "./answer-sink.ts";

let server: Server;
let answer: (sink: HttpAnswerSink, response: ServerResponse) => unknown;
const sockets: Socket[] = [];

beforeEach(async () => {
  server = createServer((_, response) => {
    const sink = new HttpAnswerSink(response, () => ({}), nothing);
    answer(sink, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  server.closeAllConnections();
  await new Promise((closed) => server.close(closed));
});

async function ask(version = "1.1"): Promise<Socket> {
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  sockets.push(socket);
  await once(socket, "connect");
  socket.write(`GET / HTTP/${version}\r\nhost: localhost\r\nconnection: close\r\n\r\n`);
  return socket;
}

/** All that comes until the server closes: headers and body as they are on the wire. */
async function wire(version?: string): Promise<{ head: string; body: Buffer }> {
  const all = await buffer(await ask(version));
  const end = all.indexOf("\r\n\r\n");
  return { head: all.toString("latin1", 0, end).toLowerCase(), body: all.subarray(end + 4) };
}

/** A body of these chunks on the wire. */
const chunked = (...chunks: readonly Buffer[]) =>
  Buffer.concat([
    ...chunks.flatMap((bytes) => [
      Buffer.from(`${bytes.length.toString(16)}\r\n`),
      bytes,
      Buffer.from("\r\n"),
    ]),
    Buffer.from("0\r\n\r\n"),
  ]);

const nothing = () => {};
const text = (value: string) => Buffer.from(value);
const noise = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
const long = Buffer.alloc(200_000, noise);

describe("what is written arrives as it was, one chunk for each write", () => {
  const cases: readonly (readonly [string, readonly AnswerBytes[], readonly Buffer[]])[] = [
    ["text beyond ASCII", ["ä€😀"], [text("ä€😀")]],
    ["bytes that are no text", [noise], [noise]],
    ["several as one", [["ä", noise, "", "€"]], [Buffer.concat([text("ä"), noise, text("€")])]],
    [
      "nothing, which would be the end",
      ["a", "", Buffer.alloc(0), [], ["", ""], "b"],
      [text("a"), text("b")],
    ],
    ["more than is put together", [long, [long, "é"]], [long, Buffer.concat([long, text("é")])]],
    [
      "just as much as is put together, and one more",
      [long.subarray(0, 65_528), long.subarray(0, 65_529)],
      [long.subarray(0, 65_528), long.subarray(0, 65_529)],
    ],
  ];

  test.each(cases)("%s", async (_name, writes, chunks) => {
    answer = (sink) => {
      sink.start(200, {});
      for (const bytes of writes) sink.write(bytes);
      sink.end();
    };
    const { head, body } = await wire();
    expect(head).toContain("transfer-encoding: chunked");
    expect(body.equals(chunked(...chunks))).toBe(true);
  });

  test.each<[string, AnswerBytes, readonly Buffer[]]>([
    ["text", "ä€", [text("ä€")]],
    ["bytes", noise, [noise]],
    ["several", [noise, "ä"], [Buffer.concat([noise, text("ä")])]],
    ["much", long, [long]],
    ["nothing", "", []],
  ])("the end too: %s", async (_name, last, chunks) => {
    answer = (sink) => {
      sink.start(200, {});
      sink.write("first");
      sink.end(last);
    };
    const { body } = await wire();
    expect(body.equals(chunked(text("first"), ...chunks))).toBe(true);
  });

  test("a client of HTTP/1.0 gets the bytes alone", async () => {
    answer = (sink) => {
      sink.start(200, {});
      sink.write("ä");
      sink.write([noise, "b"]);
      sink.end("c");
    };
    const { head, body } = await wire("1.0");
    expect(head).not.toContain("transfer-encoding");
    expect(body.equals(Buffer.concat([text("ä"), noise, text("bc")]))).toBe(true);
  });

  test.each<[string, AnswerBytes]>([
    ["text", "ä€"],
    ["bytes", noise],
    ["several", [noise, "ä"]],
    ["much", long],
  ])("an answer whose length is told: %s", async (_name, whole) => {
    const parts = [whole].flat() as (Buffer | string)[];
    const bytes = Buffer.concat(parts.map((part) => Buffer.from(part)));
    answer = (sink) => {
      sink.start(200, { "content-length": String(bytes.length) });
      sink.end(whole);
    };
    const { head, body } = await wire();
    expect(head).not.toContain("transfer-encoding");
    expect(body.equals(bytes)).toBe(true);
  });
});

test("a client that left while its body was put together has left", async () => {
  const left = Promise.withResolvers<boolean>();
  answer = (_sink, response) => {
    const late = () => new HttpAnswerSink(response, () => ({}), nothing);
    response.once("close", () => setImmediate(() => left.resolve(late().closed.aborted)));
    socket.destroy();
  };
  const socket = await ask();
  expect(await left.promise).toBe(true);
});

test("a write leaves at once, and not when the turn of the event loop is over", async () => {
  const sent: number[] = [];
  answer = (sink, response) => {
    sink.start(200, {});
    for (const bytes of ["data: 1\n\n", noise, long.subarray(0, 1_000)]) {
      sink.write(bytes);
      sent.push(response.socket?.bytesWritten ?? 0, response.socket?.writableLength ?? -1);
    }
    sink.end();
  };
  await wire();
  const [first = 0, , second = 0, , third = 0] = sent;
  expect([first > 0, second - first, third - second]).toEqual([true, 256 + 7, 1_000 + 7]);
  expect(sent.filter((_, at) => at % 2 === 1)).toEqual([0, 0, 0]);
});

test("clients that read nothing for a while each get their own answer", async () => {
  let count = 0;
  const told: Buffer[] = [];
  answer = async (sink) => {
    const own = (count += 1);
    sink.start(200, { "x-number": String(own) });
    for (let n = 0; n < 120 && !sink.closed.aborted; n += 1) {
      const bytes = Buffer.alloc(1_000 + 500 * n, `${own}:${n} `);
      if (!sink.write(n % 2 === 0 ? bytes : [bytes.subarray(0, 900), bytes.subarray(900)]))
        await sink.drained();
    }
    sink.end();
  };
  const slow = await Promise.all(Array.from({ length: 6 }, () => ask()));
  for (const socket of slow) socket.pause();
  await new Promise((later) => setTimeout(later, 50));
  told.push(...(await Promise.all(slow.map((socket) => buffer(socket)))));
  for (const all of told) {
    const end = all.indexOf("\r\n\r\n");
    const own = /^x-number: (\d+)$/m.exec(all.toString("latin1", 0, end))?.[1];
    const chunks = Array.from({ length: 120 }, (_, n) => Buffer.alloc(1_000 + 500 * n, `${own}:${n} `));
    expect(all.subarray(end + 4).equals(chunked(...chunks))).toBe(true);
  }
});
