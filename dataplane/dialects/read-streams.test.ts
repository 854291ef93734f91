/** What holds for the stream readers of all dialects; each has a read-stream.test.ts of its own. */
import { describe, expect, test } from "vitest";
import { testContext } from "../../test/grammar/convert.ts";
import { stepWords } from "../../test/grammar/step-words.ts";
import { ApiError } from "../lib/api-error.ts";
import { answerCodecs } from "./answer-codecs.ts";
import type { JsonObject } from "./messages/types.ts";

describe.each(["messages", "chat", "responses"] as const)("any stream: %s", (from) => {
  test("that fails on the way throws that failure", () => {
    const reader = answerCodecs[from].readStream(testContext());
    const error = new ApiError("timeout", "too slow");
    expect(() => reader.end({ kind: "failed", error })).toThrow(error);
  });

  test("that ends without a word was cut", () => {
    expect(() => answerCodecs[from].readStream(testContext()).end({ kind: "eof" })).toThrow(ApiError);
  });

  test("whose event is not JSON is a fault (rule 2.13)", () => {
    expect(() => stepWords(from, ['{"type":"x"'])).toThrow(ApiError);
  });
});

describe("arguments that nest too deep to be written again are a fault, not a crash", () => {
  const deep = `${'{"a":'.repeat(5_000)}1${"}".repeat(5_000)}`;
  const parsed = JSON.parse(deep) as JsonObject;

  test("in a stream", () => {
    const call = { index: 0, id: "call_a", type: "function", function: { name: "a", arguments: deep } };
    const chunk = { choices: [{ index: 0, delta: { tool_calls: [call] }, finish_reason: null }] };
    expect(() => stepWords("chat", [chunk, "[DONE]"])).toThrow(ApiError);
  });

  test.each([
    ["messages", { content: [{ type: "tool_use", id: "a", name: "a", input: parsed }] }],
    ["chat", { choices: [{ message: { tool_calls: [{ function: { name: "a", arguments: deep } }] } }] }],
    ["chat", { choices: [{ message: { tool_calls: [{ function: { name: "a", arguments: parsed } }] } }] }],
    ["responses", { output: [{ type: "function_call", name: "a", arguments: deep }] }],
  ] as const)("in a whole answer: %s", (from, body) => {
    expect(() => answerCodecs[from].readResponse(body as unknown as JsonObject, testContext())).toThrow(
      ApiError,
    );
  });
});
