import fc from "fast-check";
import { createParser } from "eventsource-parser";
import { describe, expect, test } from "vitest";
import { collectAll } from "./garbage.ts";
import { frameData, frameName, MAX_EVENT_BYTES, SseOverflow, SseReader, SseScanner } from "./sse.ts";
import { runs } from "../../test/fakes/runs.ts";
import { computedMs } from "../../test/fakes/computed.ts";

function read(chunks: readonly Buffer[]) {
  const reader = new SseReader();
  const events = chunks.flatMap((chunk) => [...reader.push(chunk)]);
  return [...events, ...reader.end()];
}

/** What the scanner covers, as text, and whether the end was closed. */
function frames(chunks: readonly Buffer[]) {
  const seen: { raw: string; name: string; data: string; closed: boolean }[] = [];
  const scanner = new SseScanner((frame) => {
    seen.push({
      raw: frame.bytes.toString("utf8", frame.start, frame.end),
      name: frameName(frame),
      data: frameData(frame).toString(),
      closed: frame.closed,
    });
  });
  for (const chunk of chunks) scanner.push(chunk);
  scanner.end();
  return seen;
}

/** Cuts bytes at the given places. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
  return [...ends, bytes.length].map((end, index) => bytes.subarray(index === 0 ? 0 : ends[index - 1], end));
}

const line = fc.oneof(
  fc.constantFrom(
    "data: {}",
    "data:x",
    "data",
    "data: ",
    "event: ping",
    "event:é漢",
    ": comment",
    "id: 1",
    "retry: 5",
    "datax: y",
    "dat",
    "dota: 1",
    "dato: 1",
    "evont: a",
    "event",
    "eventual: 1",
  ),
  fc
    .string({ unit: fc.constantFrom("a", "é", "漢", "😀", " ", ":"), maxLength: 12 })
    .map((text) => `data: ${text}`),
);
const stream = fc
  .tuple(
    fc.array(fc.array(line, { minLength: 1, maxLength: 4 }), { maxLength: 6 }),
    fc.constantFrom("\n", "\r\n", "\r"),
  )
  .map(([blocks, end]) => blocks.map((block) => block.join(end) + end + end).join(""));
const places = fc.array(fc.nat(), { maxLength: 8 });

describe("framing", () => {
  test("any chunking yields the same events", () => {
    fc.assert(
      fc.property(stream, places, fc.boolean(), (text, at, bom) => {
        const bytes = Buffer.from((bom ? "\uFEFF" : "") + text);
        expect(read(cut(bytes, at))).toEqual(read([bytes]));
      }),
      { numRuns: runs(500) },
    );
  });

  test("a few frames at a time are those of all at once", () => {
    fc.assert(
      fc.property(stream, places, fc.integer({ min: 1, max: 5 }), (text, at, most) => {
        const chunks = cut(Buffer.from(text), at);
        const seen: string[] = [];
        const scanner = new SseScanner((frame) => {
          seen.push(frame.bytes.toString("utf8", frame.start, frame.end));
        });
        scanner.add(chunks.slice(0, 2));
        scanner.readChunk(most);
        scanner.add(chunks.slice(2));
        while (scanner.hasUnread) {
          const before = seen.length;
          const read = scanner.readChunk(most);
          expect([read, read <= most]).toEqual([seen.length - before, true]);
        }
        scanner.end();
        expect(seen).toEqual(frames(chunks).map(({ raw }) => raw));
      }),
      { numRuns: runs(500) },
    );
  });

  test("agrees with eventsource-parser", () => {
    fc.assert(
      fc.property(stream, (text) => {
        const expected: { event: string; data: string }[] = [];
        const parser = createParser({
          onEvent: ({ event, data }) => expected.push({ event: event ?? "", data }),
        });
        parser.feed(text);
        expect(read([Buffer.from(text)])).toEqual(expected);
      }),
      { numRuns: runs(500) },
    );
  });

  test("the frames of a stream, joined, are its bytes, however they were cut", () => {
    fc.assert(
      fc.property(stream, places, (text, at) => {
        const whole = frames(cut(Buffer.from(text), at))
          .map(({ raw }) => raw)
          .join("");
        expect(whole).toBe(text);
      }),
      { numRuns: runs(500) },
    );
  });

  test.each(["\n", "\r\n", "\r"])("byte by byte every byte is in a frame, line ends %j", (end) => {
    const text = `event: a${end}data: 1${end}${end}data: [DONE]${end}${end}`;
    const seen = frames(Array.from(Buffer.from(text), (byte) => Buffer.of(byte)));
    expect(seen.map(({ raw }) => raw)).toEqual([
      `event: a${end}data: 1${end}${end}`,
      `data: [DONE]${end}${end}`,
    ]);
    expect(seen.every(({ closed }) => closed)).toBe(true);
  });

  test("a stream of CRLF that is cut before its very last LF is closed all the same", () => {
    expect(frames([Buffer.from("data: 1\r\n\r")])).toMatchObject([{ data: "1", closed: true }]);
  });

  test("byte by byte is no different", () => {
    const text = "\uFEFFevent: a\r\ndata: 1\r\n\r\n: c\n\ndata: é\ndata: 漢\n\n";
    const bytes = Buffer.from(text);
    expect(read(Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)))).toEqual([
      { event: "a", data: "1" },
      { event: "", data: "é\n漢" },
    ]);
  });

  test("an event without its blank line is given at the end, marked as not closed", () => {
    expect(frames([Buffer.from("data: 1\n\ndata: [DONE]")])).toMatchObject([
      { data: "1", closed: true },
      { data: "[DONE]", closed: false },
    ]);
    expect(frames([Buffer.from("data: 1\n\n: only a comment")])).toHaveLength(1);
    // Also where a single byte of its last line came.
    expect(frames([Buffer.from("data: 1\nd")])).toMatchObject([{ data: "1", closed: false }]);
  });

  test("frames stay as they were when later chunks arrive", () => {
    const kept: Buffer[] = [];
    const scanner = new SseScanner((frame) => kept.push(frame.bytes.subarray(frame.start, frame.end)));
    for (let index = 0; index < 50; index += 1) {
      scanner.push(Buffer.from(`data: ${index}`));
      scanner.push(Buffer.from("\n\ndata:"));
      scanner.push(Buffer.from(" x\n\n"));
    }
    expect(kept.filter((_, index) => index % 2 === 0).map(String)).toEqual(
      Array.from({ length: 50 }, (_, index) => `data: ${index}\n\n`),
    );
  });
});

describe("bounds", () => {
  test("rule 2.14: one event may be 8 MiB, and is not copied once for each of its chunks", () => {
    const scanner = new SseReader();
    const piece = Buffer.alloc(1400, 0x61);
    scanner.push(Buffer.from("data: "));
    const pieces = Math.floor((MAX_EVENT_BYTES - 100) / piece.length);
    const started = computedMs();
    for (let index = 0; index < pieces; index += 1) expect(scanner.push(piece)).toHaveLength(0);
    const [event] = scanner.push(Buffer.from("\n\n"));
    expect(event?.data).toHaveLength(pieces * piece.length);
    expect(computedMs() - started).toBeLessThan(2000);
  });

  test("rule 7.3: an event of a million lines is joined without making a text of each", () => {
    const event = Buffer.from(`${"data: \n".repeat(1_000_000)}data: {}\n\n`);
    let least = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < 6 && least > 140; tries += 1) {
      const started = computedMs();
      const [read] = new SseReader().push(event);
      least = Math.min(least, computedMs() - started);
      expect(read?.data).toBe(`${"\n".repeat(1_000_000)}{}`);
    }
    expect(least).toBeLessThanOrEqual(140);
  });

  test("rule 2.14: a byte more than 8 MiB is refused", () => {
    const scanner = new SseReader();
    scanner.push(Buffer.alloc(8_388_608, 0x61));
    expect(() => scanner.push(Buffer.of(0x61))).toThrow(SseOverflow);
  });

  test("a longer event is refused instead of gathered", () => {
    const scanner = new SseReader();
    const piece = Buffer.alloc(1024 * 1024, 0x61);
    expect(() => {
      for (let index = 0; index < 10; index += 1) scanner.push(piece);
    }).toThrow(SseOverflow);
  });
});

test.each([
  ["nothing", ""],
  ["the beginning of another one", "da"],
])("a long event is not kept when it is over, with %s behind it", async (_, next) => {
  const seen: WeakRef<ArrayBufferLike>[] = [];
  const scanner = new SseScanner(({ bytes }) => void seen.push(new WeakRef(bytes.buffer)));
  scanner.push(Buffer.from(`data: ${"a".repeat(1_000_000)}`));
  expect(scanner.heldBytes).toBeGreaterThan(1_000_000);
  scanner.push(Buffer.from(`\n\n${next}`));
  await expect
    .poll(() => {
      collectAll();
      return seen.map((memory) => memory.deref()?.byteLength);
    })
    .toEqual([undefined]);
  expect(scanner.heldBytes).toBeLessThan(10_000);
});
