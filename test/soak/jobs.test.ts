/** Result lines of both forms, as dialects.md §A7 and §A8 have them. */
import { expect, test } from "vitest";
import { readLine } from "./jobs.ts";

test.each([
  [
    "a success of a message batch",
    { custom_id: "i0", result: { type: "succeeded", message: { usage: { output_tokens: 7 } } } },
    { requestId: null, outcome: "succeeded", output: 7 },
  ],
  [
    "a cancelled request of it",
    { custom_id: "i0", result: { type: "canceled" } },
    { requestId: null, outcome: "canceled", output: null },
  ],
  [
    "a success in an output file",
    {
      custom_id: "i0",
      response: { status_code: 200, request_id: "req_1", body: { usage: { completion_tokens: 7 } } },
      error: null,
    },
    { requestId: "req_1", outcome: "succeeded", output: 7 },
  ],
  [
    "a failure in an error file",
    {
      custom_id: "i0",
      response: { status_code: 502, request_id: "req_1", body: {} },
      error: { code: "upstream_error" },
    },
    { requestId: "req_1", outcome: "errored", output: null },
  ],
  [
    "a cancelled request in one",
    { custom_id: "i0", response: null, error: { code: "batch_cancelled" } },
    { requestId: null, outcome: "canceled", output: null },
  ],
  [
    "an expired one",
    { custom_id: "i0", response: null, error: { code: "batch_expired" } },
    { requestId: null, outcome: "expired", output: null },
  ],
])("%s", (_, line, seen) => {
  expect(readLine(line)).toEqual({ customId: "i0", ...seen });
});
