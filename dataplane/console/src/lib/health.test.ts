import { expect, test } from "vitest";
import type { Request } from "../api/schema.ts";
import { failureOf, healthOf, healthWord, percentile } from "./health.ts";

const request = (given: Partial<Request>): Request => ({
  object: "organization.request",
  id: "req_1",
  created_at: 1,
  api_key_id: null,
  project_id: null,
  dialect: "chat",
  path: "relay",
  model: "m",
  status: 200,
  error_code: null,
  streamed: false,
  first_byte_ms: 10,
  duration_ms: 20,
  tries: [{ status: 200, reason: null, ms: 20 }],
  input_tokens: 1,
  output_tokens: 1,
  credits: "0",
  tool_calls: 0,
  batch_id: null,
  tags: {},
  ...given,
});

test("a model's faults are told from the caller's and from our own limits", () => {
  const health = healthOf([
    request({}),
    request({ status: 400, error_code: "invalid_value" }),
    request({ status: 499, error_code: "client_closed" }),
    request({ status: 429, error_code: "rate_limit_exceeded", tries: [] }),
    request({ status: 429, error_code: "rate_limit_exceeded" }),
    request({ status: 503, error_code: "server_error", tries: [], first_byte_ms: null }),
    // It broke off in the middle.
    request({ error_code: "server_error", first_byte_ms: 90 }),
    request({ model: null, status: 404 }),
    request({ model: "other", status: 502 }),
  ]);
  expect([...health]).toEqual([
    ["m", { requests: 7, failed: 3, firstByteP95: 90 }],
    ["other", { requests: 1, failed: 1, firstByteP95: 10 }],
  ]);
  expect(
    [health.get("m"), health.get("other"), health.get("unheard"), healthOf([request({})]).get("m")].map(
      healthWord,
    ),
  ).toEqual(["shaky", "failing", "unknown", "good"]);
});

test("an answer that broke off is a failure though its status was 200", () => {
  expect(
    [{}, { error_code: "server_error" }, { status: 404 }].map((given) => failureOf(request(given)) !== null),
  ).toEqual([false, true, true]);
});

test("what callers did wrong, or left, is told apart from what failed at a model or here", () => {
  const of = (given: Partial<Request>) => failureOf(request(given));
  const unknownModel = { status: 404, error_code: "model_not_found", model: null, tries: [] };
  expect([of(unknownModel), of({ status: 499, error_code: "client_closed" })]).toEqual(["caller", "caller"]);
  expect([of({ status: 502, error_code: "upstream_error" }), of({ status: 500, tries: [] })]).toEqual([
    "service",
    "service",
  ]);
});

test("percentiles are values that were measured", () => {
  expect([percentile([], 95), percentile([5], 50), percentile([1, 2, 3, 4], 50)]).toEqual([null, 5, 2]);
});
