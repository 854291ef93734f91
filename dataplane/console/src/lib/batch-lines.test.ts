import { expect, test } from "vitest";
import { inputFailures, readFailedLines, type FailedLines } from "./batch-lines.ts";

/** Results in pieces of so many bytes each, wherever they cut a line or a letter. */
function streamOf(lines: readonly object[], pieceBytes = 64 * 1024) {
  const bytes = new TextEncoder().encode(lines.map((line) => JSON.stringify(line)).join("\n"));
  let at = 0;
  let isCancelled = false;
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(at, at + pieceBytes));
      at += pieceBytes;
    },
    cancel: () => {
      isCancelled = true;
    },
  });
  return { stream, isCancelled: () => isCancelled };
}
const expired = (line: string) => ({ custom_id: line, response: null, error: { code: "batch_expired" } });

test.for([1, 7, 64 * 1024])(
  "failed lines of both kinds are told with code and message, succeeded ones left out: pieces of %d bytes",
  async (pieceBytes) => {
    const lines = [
      { custom_id: "a", result: { type: "succeeded", message: {} } },
      {
        custom_id: "b",
        result: {
          type: "errored",
          error: { type: "error", error: { type: "invalid_request", message: "No." } },
        },
      },
      { custom_id: "c", result: { type: "expired" } },
      { custom_id: "d", response: { status_code: 200, body: {} }, error: null },
      {
        custom_id: "e",
        response: { status_code: 400, body: { error: { code: "bad", message: "Bad." } } },
        error: null,
      },
      { custom_id: "f", response: null, error: { code: "upstream_error", message: "Gone – far." } },
    ];
    expect(await readFailedLines(streamOf(lines, pieceBytes).stream)).toEqual({
      lines: [
        { line: "b", code: "invalid_request", message: "No." },
        { line: "c", code: "expired", message: "" },
        { line: "e", code: "bad", message: "Bad." },
        { line: "f", code: "upstream_error", message: "Gone – far." },
      ],
      isCut: false,
    });
  },
);

test("what is wrong with an input file is told by the numbers of its lines, or of all of it", () => {
  const data = [
    { code: "invalid_json_line", message: "No JSON.", param: null, line: 3 },
    { code: "empty_file", message: "Nothing.", param: "input_file_id", line: null },
  ];
  expect(inputFailures({ object: "list", data })).toEqual([
    { line: "3", code: "invalid_json_line", message: "No JSON." },
    { line: "–", code: "empty_file", message: "Nothing." },
  ]);
  expect(inputFailures(null)).toEqual([]);
});

test("every failed line of the largest batch is told; of more it says that there are", async () => {
  const read = async (count: number) => {
    const lines = Array.from({ length: count }, (_, index) => expired(`line-${index}`));
    const { lines: told, isCut } = await readFailedLines(streamOf(lines).stream);
    return [told.length, told.at(-1)?.line, isCut];
  };
  expect(await read(10_000)).toEqual([10_000, "line-9999", false]);
  expect(await read(10_001)).toEqual([10_000, "line-9999", true]);
  expect(await read(20_000)).toEqual([10_000, "line-9999", true]);
});

test("results that are too large are read no further, and it says so", async () => {
  const answer = { custom_id: "large", response: { status_code: 200, body: { text: "x".repeat(900) } } };
  const lines = [expired("first"), ...Array.from({ length: 100 }, () => answer), expired("last")];
  const { stream, isCancelled } = streamOf(lines, 1000);
  expect(await readFailedLines(stream, undefined, 10_000)).toEqual({
    lines: [{ line: "first", code: "batch_expired", message: "" }],
    isCut: true,
  });
  expect(isCancelled()).toBe(true);
});

test("what has come is shown while the rest is on its way", async () => {
  const { writable, readable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  const write = (line: string) =>
    writer.write(new TextEncoder().encode(`${JSON.stringify(expired(line))}\n`));
  const shown: FailedLines[] = [];
  const whole = readFailedLines(readable, (some) => shown.push(some));
  await write("first");
  await new Promise((done) => setTimeout(done, 400));
  await write("second");
  await expect.poll(() => shown.at(-1)?.lines.map(({ line }) => line)).toEqual(["first", "second"]);
  await write("third");
  await writer.close();
  expect((await whole).lines).toHaveLength(3);
});
