import { expect, test } from "vitest";
import { failedLines } from "./batch-lines.ts";

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
    { customId: "b", code: "invalid_request", message: "No." },
    { customId: "c", code: "expired", message: "" },
    { customId: "e", code: "bad", message: "Bad." },
    { customId: "f", code: "upstream_error", message: "Gone." },
  ]);
});
