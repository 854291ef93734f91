/** What the tap hands to the judge of what a test was answered. */
import { expect, test } from "vitest";
import { errorBody } from "../../dataplane/dialects/errors.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { vendorJudge } from "./judge.ts";
import { seenIn, shapeOf, type SeenBody } from "./seen.ts";

const judge = await vendorJudge();
const json = { status: 200, type: "application/json; charset=utf-8", ended: true };
const stream = { ...json, type: "text/event-stream; charset=utf-8" };
const faultsOf = (body: SeenBody) => seenIn(body).flatMap(({ type, value }) => judge(type, value));

test("answers, events and errors are held to their own types", () => {
  expect(seenIn({ ...json, dialect: "chat", text: `{"id":"x"}` })).toEqual([
    { type: "ChatAnswer", value: { id: "x" } },
  ]);
  const events = `event: ping\ndata: {"type":"ping"}\n\n: comment\n\ndata: {"type":"x"}\r\n\r\ndata: {"type":"cut`;
  expect(seenIn({ ...stream, dialect: "messages", text: events, ended: false })).toEqual([
    { type: "MessagesEvent", value: { type: "x" } },
  ]);
  const error = { type: "error", error: {} };
  const text = `data: ${JSON.stringify(error)}\n\n`;
  expect(seenIn({ ...stream, dialect: "messages", text }).map(({ type }) => type)).toEqual(["MessagesError"]);
  expect(seenIn({ ...stream, dialect: "responses", text }).map(({ type }) => type)).toEqual([
    "ResponsesEvent",
  ]);
  expect(seenIn({ ...stream, dialect: "chat", text }).map(({ type }) => type)).toEqual(["OpenaiError"]);
  // What is cut, or no JSON, is judged elsewhere.
  expect(seenIn({ ...json, dialect: "chat", text: `{"id"`, ended: false })).toEqual([]);
});

test.each(["invalid_value", "rate_limited", "unavailable", "model_not_found"] as const)(
  "the error %s fits both vendors' types, and one without its message does not",
  (code) => {
    for (const family of ["messages", "openai"] as const) {
      const body = errorBody({ family, union: false }, new ApiError(code, "why"), "req_1");
      const dialect = family === "messages" ? "messages" : "chat";
      const seen = { ...json, status: 400, dialect } as const;
      expect(faultsOf({ ...seen, text: JSON.stringify(body) })).toEqual([]);
      const mute = JSON.stringify(body).replace(`"message":"why"`, `"massage":"why"`);
      expect(faultsOf({ ...seen, text: mute })).not.toEqual([]);
    }
  },
);

test("a shape tells kinds and keys, not words", () => {
  const shape = shapeOf({ type: "text", text: "a", list: [1, 2, null] });
  expect(shapeOf({ type: "text", text: "b", list: [null, 7] })).not.toBe(shape);
  expect(shapeOf({ type: "text", text: "b", list: [3, null] })).toBe(shape);
  expect(shapeOf({ type: "image", text: "a", list: [1, 2, null] })).not.toBe(shape);
  expect(shapeOf({ type: "text", text: 1, list: [1, null] })).not.toBe(shape);
});
