/** Requests without the reasoning of earlier turns: what goes, and that nothing else changes. */
import { expect, test } from "vitest";
import { ApiError } from "../../lib/api-error.ts";
import { bodyWithoutReasoning, rejectsReasoning, withoutReasoning } from "./rejected-reasoning.ts";

test.each([
  ["messages.1.content.0: Invalid `signature` in `thinking` block", true],
  ["The encrypted content gAAA...ng== could not be verified.", true],
  ["Item 'rs_0a1' of type 'reasoning' was provided without its required following item.", true],
  [
    "Item 'fc_0a1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_0a1'.",
    false,
  ],
  ["messages.0.content: Field required", false],
])("%s: about reasoning is %s", (message, about) => {
  expect(rejectsReasoning(new ApiError("invalid_request", message))).toBe(about);
  expect(rejectsReasoning(new ApiError("upstream_error", message))).toBe(false);
  expect(rejectsReasoning(new Error(message))).toBe(false);
});

const thinking = '{"type":"thinking","thinking":"hm","signature":"s"}';
const redacted = '{ "data":"x","type" : "redacted_thinking" }';

test.each([
  ["the first block", `{"messages":[{"content":[${thinking}, {"type":"text","text":"1.0"}]}],"n":1.0}`],
  ["the last block", `{"messages":[{"content":[{"type":"text","text":"1.0"} ,${redacted}]}],"n":1.0}`],
  [
    "all blocks of a turn",
    `{"messages":[{"content":[{"type":"text","text":"1.0"}]},{"role":"assistant","content":[${thinking},${redacted}]}],"n":1.0}`,
  ],
])("Messages: %s", (_, body) => {
  expect(bodyWithoutReasoning("messages", Buffer.from(body))?.toString().replaceAll(" ", "")).toBe(
    '{"messages":[{"content":[{"type":"text","text":"1.0"}]}],"n":1.0}',
  );
});

test("Responses: reasoning items go, whatever surrounds them", () => {
  const body = `{"input":[{"type":"reasoning","id":"rs_1"},{"role":"user","content":"Hi"}, {"type":"reasoning"}]}`;
  expect(bodyWithoutReasoning("responses", Buffer.from(body))?.toString()).toBe(
    '{"input":[{"role":"user","content":"Hi"}]}',
  );
});

test.each([
  ["messages", '{"messages":[{"role":"user","content":"thinking"}]}'],
  ["messages", '{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}'],
  ["responses", '{"input":"reasoning"}'],
  ["responses", '{"input":[{"role":"user","content":"Hi"}],"reasoning":{"effort":"low"}}'],
  ["chat", `{"messages":[{"role":"assistant","content":"x","reasoning_content":"hm"}]}`],
] as const)("%s: nothing to leave out of %s", (dialect, body) => {
  expect(bodyWithoutReasoning(dialect, Buffer.from(body))).toBeNull();
});

test("the hub's form: the same, and null when there is none", () => {
  const said = { role: "user" as const, content: "Hi" };
  const thought = { type: "thinking" as const, thinking: "hm", signature: "s" };
  const text = { type: "text" as const, text: "Hello" };
  expect(withoutReasoning([said, { role: "assistant", content: [thought, text] }])).toEqual([
    said,
    { role: "assistant", content: [text] },
  ]);
  expect(withoutReasoning([said, { role: "assistant", content: [thought] }])).toEqual([said]);
  expect(withoutReasoning([said, { role: "assistant", content: [text] }])).toBeNull();
});
