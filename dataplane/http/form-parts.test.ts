import { Dicer } from "@fastify/busboy";
import { MIMEType } from "node:util";
import { expect, test, vi } from "vitest";
import { ApiError } from "../lib/api-error.ts";
import { formParts } from "./form-parts.ts";
import { computedMs } from "../../test/fakes/computed.ts";

const type = new MIMEType("multipart/form-data; boundary=b");

/** `body` in pieces of `size` bytes. */
async function* pieces(body: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < body.length; at += size) yield body.subarray(at, at + size);
}

async function read(body: AsyncIterable<Buffer>, most = 10) {
  const found: [name: string, filename: string | undefined, type: string | undefined, text: string][] = [];
  for await (const { name, filename, contentType, bytes } of formParts(type, body, most)) {
    const read: Buffer[] = [];
    for await (const piece of bytes) read.push(piece);
    found.push([name, filename, contentType, Buffer.concat(read).toString()]);
  }
  return found;
}

const part = (headers: string, body: string) => `--b\r\n${headers}\r\n\r\n${body}\r\n`;
const disposition = (parameters: string) => `Content-Disposition: form-data; ${parameters}`;
const form = Buffer.from(
  part(disposition('name="purpose"'), "batch") +
    part("content-type: text/plain", "no field of a form") +
    part(`${disposition('name="file"; filename="ä.txt"')}\r\nContent-Type: text/plain`, "-b\r\n--a\r\n-") +
    part(disposition('name="empty"'), "") +
    "--b--\r\nwhat follows is not read",
);
const parts = [
  ["purpose", undefined, undefined, "batch"],
  ["file", "ä.txt", "text/plain", "-b\r\n--a\r\n-"],
  ["empty", undefined, undefined, ""],
];

test("a form is the same whatever pieces it comes in", async () => {
  for (let size = 1; size <= form.length; size += 1) expect(await read(pieces(form, size))).toEqual(parts);
});

/** Blanks within a media type's subtype cost MIMEType quadratic time: these were seconds of a stopped event loop. */
test("blanks in a disposition cost no more than other characters", async () => {
  const blanks = " ".repeat(15_000);
  const parts = Array.from({ length: 50 }, () => part(`Content-Disposition: form-data${blanks}x`, ""));
  const started = computedMs();
  expect(await read(pieces(Buffer.from(`${parts.join("")}--b--`), 64 * 1024), 60)).toEqual([]);
  expect(computedMs() - started).toBeLessThan(5_000);
});

test("a form that is cut anywhere before its end is refused", async () => {
  const end = form.indexOf("--b--") + 5;
  for (let length = 0; length < end; length += 1) {
    await expect(read(pieces(form.subarray(0, length), 7)), `${length} bytes`).rejects.toMatchObject({
      code: "invalid_request",
      message: "The request body is not a complete multipart form.",
    });
  }
});

test.each([
  ['name="file"; filename="a b.txt"', "a b.txt"],
  ["name=file; filename=a.txt", "a.txt"],
  ['filename="a.txt"; name="file"', "a.txt"],
  [String.raw`name="file"; filename="a\"b\\c"`, String.raw`a"b\c`],
  [String.raw`name="file"; filename="C:\notes\a.txt"`, String.raw`C:\notes\a.txt`],
  ['name="file"; filename="a\0\x1bb"', "ab"],
  ['name="file"; filename="日本 ü.txt"', "日本 ü.txt"],
  ["name=file; filename=x; filename*=UTF-8''a%20%C3%BC.txt", "a ü.txt"],
  ["name=file; filename=x; filename*=UTF-8''%E3", "x"],
  ['name="file"; filename=""', ""],
  ['name="file"', undefined],
])("the name in %s", async (parameters, filename) => {
  const body = Buffer.from(`${part(disposition(parameters), "x")}--b--`);
  expect(await read(pieces(body, 100))).toEqual([["file", filename, undefined, "x"]]);
});

test("more parts than allowed, fields or not, are refused", async () => {
  const many = (headers: string) => pieces(Buffer.from(`${part(headers, "x").repeat(11)}--b--`), 1_000);
  const tooMany = { code: "invalid_request", message: "The form has too many fields." };
  await expect(read(many(disposition("name=a")))).rejects.toMatchObject(tooMany);
  await expect(read(many("x: y"))).rejects.toMatchObject(tooMany);
  expect(await read(many(disposition("name=a")), 11)).toHaveLength(11);
});

/** Each refusal has a stack, and there were two thousand for 64 KiB: 70 ms of a stopped event loop. */
test("a packet of many more parts is refused once", async () => {
  const packet = pieces(Buffer.from(`${part(disposition("name=a"), "x").repeat(1_000)}--b--`), 64 * 1024);
  const emit = vi.spyOn(Dicer.prototype, "emit");
  await expect(read(packet)).rejects.toThrow("too many fields");
  expect(emit.mock.calls.filter(([event]) => event === "part")).toHaveLength(11);
  emit.mockRestore();
});

test.each(["multipart/form-data", `multipart/form-data; boundary=${"b".repeat(71)}`])("%s", async (given) => {
  const next = formParts(new MIMEType(given), pieces(form, 10), 10).next();
  await expect(next).rejects.toMatchObject({ code: "invalid_request" });
});

/** A file that goes on as long as it is read. */
async function* endless(over: (bytes: number) => void): AsyncGenerator<Buffer> {
  let bytes = 0;
  try {
    yield Buffer.from(`--b\r\n${disposition("name=file; filename=a")}\r\n\r\n`);
    for (;;) {
      const piece = Buffer.alloc(64 * 1024);
      bytes += piece.length;
      yield piece;
      // As a socket does, which gives others their turn.
      await new Promise(setImmediate);
    }
  } finally {
    over(bytes);
  }
}

test("of a part that nobody reads only so much is taken in; the body ends with its reader", async () => {
  const { promise: read, resolve } = Promise.withResolvers<number>();
  const reader = formParts(type, endless(resolve), 10);
  const first = await reader.next();
  expect(first.value).toMatchObject({ name: "file" });
  await reader.return(undefined);
  expect(await read).toBeLessThanOrEqual(1024 * 1024);
});

test("what goes wrong with the body is what its reader gets, in a part or waiting for one", async () => {
  const fault = new ApiError("too_large", "too large");
  async function* broken(head: string): AsyncGenerator<Buffer> {
    yield Buffer.from(head);
    throw fault;
  }
  await expect(read(broken(""))).rejects.toBe(fault);
  await expect(read(broken(`--b\r\n${disposition("name=a")}\r\n\r\nx`))).rejects.toBe(fault);
  await expect(read(broken(part(disposition("name=a"), "x")))).rejects.toBe(fault);
});
