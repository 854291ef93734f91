/** A Messages upstream's stream: order and delay, which golden files do not show (rules 2.13–2.14, dialects.md §D5). */
import { expect, test } from "vitest";
import { computedMs } from "../../../test/fakes/computed.ts";
import { convertStream, convertWhole, testCarry, testContext } from "../../../test/grammar/convert.ts";
import { stepWords } from "../../../test/grammar/step-words.ts";
import { ApiError } from "../../lib/api-error.ts";
import { answerCodecs } from "../answer-codecs.ts";
import { MessageAccumulator } from "./accumulate.ts";
import type { JsonObject } from "./types.ts";

const start = {
  type: "message_start",
  message: { id: "msg_1", usage: { input_tokens: 1, output_tokens: 1 } },
};
const block = (index: number, content_block: JsonObject) => ({
  type: "content_block_start",
  index,
  content_block,
});
const text = (index: number, text: string) => ({
  type: "content_block_delta",
  index,
  delta: { type: "text_delta", text },
});

test("rule 7.3: a long call that is cut takes little time to end, however often it is told to", () => {
  const reader = answerCodecs.messages.readStream(testContext());
  const step = (event: JsonObject) => reader.step({ event: "", data: JSON.stringify(event) });
  step(start);
  step(block(0, { type: "tool_use", id: "toolu_1", name: "f", input: {} }));
  const partial_json = `{"x":[${"1,".repeat(1_000_000)}{}`;
  step({ type: "content_block_delta", index: 0, delta: { type: "input_json_delta", partial_json } });
  const before = computedMs();
  for (let again = 0; again < 300; again += 1) step({ type: "content_block_stop", index: 0 });
  expect(computedMs() - before).toBeLessThan(1_000);
});

test("indexes with gaps, negative ones and missing stops become regular", () => {
  const reader = answerCodecs.messages.readStream(testContext());
  const events = [
    start,
    block(-1, { type: "text", text: "" }),
    text(-1, "A"),
    block(7, { type: "text", text: "" }),
    text(7, "B"),
    { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 2 } },
    { type: "message_stop" },
  ].flatMap((data) => reader.step({ event: data.type, data: JSON.stringify(data) }));
  expect(events.filter((event) => "index" in event).map((event) => event.index)).toEqual([0, 0, 0, 1, 1, 1]);
});

test("the same message_start twice is one, another one is a fault and not a second message", () => {
  expect(stepWords("messages", [start, start])).toEqual([["message_start"], []]);
  const other = { type: "message_start", message: { id: "msg_2" } };
  expect(() => stepWords("messages", [start, other])).toThrow(ApiError);
  const begun = [start, block(0, { type: "text", text: "" })];
  expect(() => stepWords("messages", [...begun, start])).toThrow(ApiError);
});

test("blocks that stand in message_start already are said", () => {
  const content = [
    { type: "text", text: "A" },
    { type: "tool_use", id: "toolu_1", name: "look", input: { at: "it" } },
  ];
  const full = { type: "message_start", message: { id: "msg_1", content, stop_reason: "tool_use" } };
  expect(stepWords("messages", [full, { type: "message_stop" }])).toEqual([
    ["message_start", "+text", "A", "-", "+tool_use", '{"at":"it"}', "-"],
    ["tool_use", "message_stop"],
  ]);
});

test.each(["tool_calls", "stop", "pause_turn"])(
  "a call under a reason of the provider's own (%s) is one, streamed and whole",
  (stop_reason) => {
    const call = { type: "tool_use", id: "toolu_1", name: "look", input: {} };
    const events = [
      start,
      block(0, call),
      { type: "message_delta", delta: { stop_reason }, usage: { output_tokens: 1 } },
      { type: "message_stop" },
    ];
    expect(stepWords("messages", events).at(-1)).toContain("tool_use");
    const frames = events.map((data) => ({ event: data.type, data: JSON.stringify(data) }));
    expect(convertStream("messages", frames, testCarry("chat")).terminal).toContain(
      '"finish_reason":"tool_calls"',
    );
    expect(convertWhole("messages", { content: [call], stop_reason }, testCarry("chat"))).toMatchObject({
      choices: [{ finish_reason: "tool_calls" }],
    });
  },
);

test.each(["chat", "responses"] as const)(
  "words before a refusal are it, with nothing explained behind them, streamed and whole: %s",
  (to) => {
    const call = { type: "tool_use", id: "toolu_1", name: "look", input: {} };
    const ended = {
      stop_reason: "refusal",
      stop_details: { type: "refusal", category: null, explanation: "Declined." },
    };
    const said = { type: "text", text: "I look." };
    const events = [
      start,
      block(0, said),
      block(1, call),
      { type: "message_delta", delta: ended, usage: { output_tokens: 1 } },
      { type: "message_stop" },
    ].map((data) => ({ event: data.type, data: JSON.stringify(data) }));
    const { bytes, terminal } = convertStream("messages", events, testCarry(to));
    const whole = convertWhole("messages", { content: [said, call], ...ended }, testCarry(to));
    for (const answer of [bytes + terminal, JSON.stringify(whole)]) {
      expect(answer).toContain("I look.");
      expect(answer).not.toContain("Declined.");
    }
  },
);

test("a compaction reaches a Messages client, sealed: without it the conversation has no memory", () => {
  const compacted = { type: "compaction_delta", content: "so far", encrypted_content: "opaque==" };
  const events = [
    start,
    block(0, { type: "compaction", content: null, encrypted_content: null }),
    { type: "content_block_delta", index: 0, delta: compacted },
    { type: "content_block_stop", index: 0 },
    block(1, { type: "compaction", content: null, encrypted_content: null }),
    {
      type: "content_block_delta",
      index: 1,
      delta: { ...compacted, content: null, encrypted_content: null },
    },
    { type: "message_stop" },
  ].map((data) => ({ event: data.type, data: JSON.stringify(data) }));
  const { bytes } = convertStream("messages", events, testCarry("messages"));
  const deltas = [...bytes.matchAll(/^data: (.*compaction_delta.*)$/gm)].map(
    ([, data = ""]) => (JSON.parse(data) as { delta: JsonObject }).delta,
  );
  const sealed = 'gapura_r1_<{"from":"messages","encrypted":"opaque=="}>';
  expect(deltas).toEqual([
    { ...compacted, encrypted_content: sealed },
    { ...compacted, content: null, encrypted_content: null },
  ]);
  expect(convertStream("messages", events, testCarry("chat")).bytes).not.toContain("so far");
  const reader = answerCodecs.messages.readStream(testContext());
  const message = new MessageAccumulator();
  for (const event of events.flatMap((one) => reader.step(one))) message.push(event);
  expect(message.whole()?.content).toEqual([
    { type: "compaction", content: "so far", encrypted_content: "opaque==" },
    { type: "compaction", content: null, encrypted_content: null },
  ]);
});

test.each([false, true])(
  "the tier that served it is told to a Responses client (compacting: %s)",
  (compacts) => {
    const usage = { input_tokens: 1, output_tokens: 1, service_tier: "priority" };
    const events = [
      { ...start, message: { ...start.message, usage } },
      block(0, { type: "text", text: "so far" }),
      { type: "message_stop" },
    ].map((data) => ({ event: data.type, data: JSON.stringify(data) }));
    const { terminal } = convertStream("messages", events, testCarry("responses", {}, { compacts }));
    expect(terminal).toContain('"service_tier":"priority"');
  },
);

test("an empty signature of a block that is over says nothing (llama.cpp sends it last of all)", () => {
  const signature = {
    type: "content_block_delta",
    index: 0,
    delta: { type: "signature_delta", signature: "" },
  };
  const begun = [block(0, { type: "thinking", thinking: "" }), block(1, { type: "text", text: "" })];
  expect(stepWords("messages", [start, ...begun, text(1, "A"), signature, text(1, "B")]).slice(-3)).toEqual([
    ["A"],
    [],
    ["B"],
  ]);
  const signed = { ...signature, delta: { ...signature.delta, signature: "sig" } };
  expect(() => stepWords("messages", [start, ...begun, signed])).toThrow(ApiError);
});

test("a block's stop that comes once the next one has begun ends nothing else", () => {
  const stop = (index: number) => ({ type: "content_block_stop", index });
  const begun = [block(0, { type: "text", text: "" }), text(0, "A"), block(1, { type: "text", text: "" })];
  expect(stepWords("messages", [start, ...begun, stop(0), text(1, "B"), stop(1)])).toEqual([
    ["message_start"],
    ["+text"],
    ["A"],
    ["-", "+text"],
    [],
    ["B"],
    ["-"],
  ]);
});

test("a delta of a block that is closed is a fault, not lost text", () => {
  const closed = [start, block(0, { type: "text", text: "" }), { type: "content_block_stop", index: 0 }];
  expect(() => stepWords("messages", [...closed, text(0, "A")])).toThrow(ApiError);
});

test("an end without a stop reason has one all the same", () => {
  expect(stepWords("messages", [start, { type: "message_stop" }])).toEqual([
    ["message_start"],
    ["end_turn", "message_stop"],
  ]);
});
