import { Readable, type Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { expect, test } from "vitest";
import { answerDecoder, decoderOf } from "./content-coding.ts";

/** Decodes what comes in pieces of this size. */
async function decodedBy(decoder: Transform, bytes: Buffer, size = bytes.length): Promise<Buffer> {
  const pieces: Buffer[] = [];
  await pipeline(Readable.from(piecesOf(bytes, size)), decoder, async (decoded: AsyncIterable<Buffer>) => {
    for await (const piece of decoded) pieces.push(piece);
  });
  return Buffer.concat(pieces);
}

const decoded = (bytes: Buffer, size?: number) => decodedBy(decoderOf("zstd"), bytes, size);

const piecesOf = (bytes: Buffer, size: number): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
    bytes.subarray(at * size, (at + 1) * size),
  );

const frames = (texts: readonly string[]): Buffer =>
  Buffer.concat(texts.map((text) => zstdCompressSync(text)));

/** A frame that holds nothing of the contents (RFC 8878 §3.1.2). */
function skippable(bytes: number): Buffer {
  const frame = Buffer.alloc(8 + bytes);
  frame.writeUInt32LE(0x184d2a53, 0);
  frame.writeUInt32LE(bytes, 4);
  return frame;
}

const long = "a frame ".repeat(100_000);

test.each([
  ["in one piece", 1e9],
  ["a byte at a time", 1],
  ["in pieces of ten bytes", 10],
  ["in pieces of a kilobyte", 1024],
])("zstd data of several frames is read to its end: %s", async (_, size) => {
  const sent = Buffer.concat([skippable(20), frames(["one, ", "", "two, ", long]), skippable(0)]);
  expect((await decoded(sent, size)).toString()).toBe(`one, two, ${long}`);
});

test.each([
  ["what is no frame", Buffer.from("rest")],
  ["zeros", Buffer.alloc(64)],
  ["a frame that is cut", zstdCompressSync(long).subarray(0, -4)],
  ["a skippable frame that is cut", skippable(100).subarray(0, 50)],
])("zstd data is damaged by %s behind a frame", async (_, rest) => {
  await expect(decoded(Buffer.concat([zstdCompressSync("whole"), rest]))).rejects.toThrow(
    /frame|end of file/,
  );
});

test("a large answer in frames is read as it is taken, also in another coding", async () => {
  const texts = Array.from({ length: 40 }, (_, at) => `${at} `.repeat(50_000));
  const decoder = answerDecoder("zstd, gzip");
  if (decoder === null) throw new Error("both are known");
  const read = await decodedBy(decoder, gzipSync(frames(texts)), 5_000);
  expect(read.toString()).toBe(texts.join(""));
});

test("zstd data of ever more frames of nothing is refused before it costs much", async () => {
  const empty = frames([""]);
  await expect(decoded(Buffer.concat(Array<Buffer>(1_000).fill(empty)))).rejects.toThrow(/frames/);
  const many = frames(Array.from({ length: 60 }, (_, at) => String(at % 10)));
  expect((await decoded(many)).length).toBe(60);
});
