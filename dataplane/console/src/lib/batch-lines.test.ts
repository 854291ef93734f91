import { expect, test } from "vitest";
import { failedLines, inputFailures } from "./batch-lines.ts";

test("failed lines of both kinds are told with code and message, succeeded ones left out", () => {
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
    { custom_id: "f", response: null, error: { code: "upstream_error", message: "Gone." } },
  ];
  expect(failedLines(lines.map((line) => JSON.stringify(line)).join("\n"))).toEqual([
    { line: "b", code: "invalid_request", message: "No." },
    { line: "c", code: "expired", message: "" },
    { line: "e", code: "bad", message: "Bad." },
    { line: "f", code: "upstream_error", message: "Gone." },
  ]);
});

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

test("every failed line of the largest batch is told", () => {
  const lines = Array.from({ length: 10_000 }, (_, index) =>
    JSON.stringify({ custom_id: `line-${index}`, response: null, error: { code: "batch_expired" } }),
  );
  const told = failedLines(lines.join("\n"));
  expect([told.length, told.at(-1)?.line]).toEqual([10_000, "line-9999"]);
});
