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

describe("a stream of blocks without end is a fault, however little stands in each", () => {
  const said = (type: string, output_index: number, content_index: number, more: object) => ({
    type,
    output_index,
    content_index,
    ...more,
  });
  const annotation = { type: "url_citation", start_index: 0, end_index: 1, url: "u", title: "" };
  test.each<[string, "messages" | "chat" | "responses", (index: number) => object]>([
    [
      "blocks of Messages",
      "messages",
      (index) => ({ type: "content_block_start", index, content_block: { type: "text", text: "" } }),
    ],
    [
      "text and thinking of Chat",
      "chat",
      (index) => ({ choices: [{ delta: index % 2 === 0 ? { content: "a" } : { reasoning: "b" } }] }),
    ],
    [
      "parts of Responses",
      "responses",
      (index) => said("response.output_text.delta", 0, index, { delta: "a" }),
    ],
    [
      "citations of parts to come",
      "responses",
      (index) => said("response.output_text.annotation.added", 0, index, { annotation }),
    ],
  ])("%s", (_, from, event) => {
    const reader = answerCodecs[from].readStream({ ...testContext(), annotations: true });
    const step = (index: number) => reader.step({ event: "", data: JSON.stringify(event(index)) });
    for (let index = 0; index < 10_000; index += 1) step(index);
    expect(() => {
      for (let index = 10_000; index < 70_000; index += 1) step(index);
    }).toThrow(ApiError);
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
