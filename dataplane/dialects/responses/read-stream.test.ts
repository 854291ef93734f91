/** A Responses upstream's stream: order and delay, which golden files do not show (rules 2.13–2.14, dialects.md §D5). */
import { describe, expect, test } from "vitest";
import { convertWhole, testCarry, testContext } from "../../../test/grammar/convert.ts";
import { computedMs } from "../../../test/fakes/computed.ts";
import { hubWord, stepWords } from "../../../test/grammar/step-words.ts";
import { ApiError } from "../../lib/api-error.ts";
import { answerCodecs } from "../answer-codecs.ts";
import { MessageAccumulator } from "../messages/accumulate.ts";
import type { JsonObject } from "../messages/types.ts";

test("a tier that only Responses has is told by its name, and a format of null by the default", () => {
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  const message = { type: "message", role: "assistant", content: [{ type: "output_text", text: "Hi" }] };
  const body = { status: "completed", service_tier: "ultrafast", output: [message], usage };
  const carry = testCarry("responses", { text: { format: null, verbosity: "low" } });
  expect(convertWhole("responses", body, carry)).toMatchObject({
    service_tier: "ultrafast",
    text: { format: { type: "text" }, verbosity: "low" },
  });
});

const delta = (output_index: number, delta: string) => ({
  type: "response.output_text.delta",
  output_index,
  content_index: 0,
  delta,
});

test("the type may stand in the event's name alone", () => {
  const reader = answerCodecs.responses.readStream(testContext());
  const { type, ...data } = delta(0, "A");
  expect(reader.step({ event: type, data: JSON.stringify(data) }).map(hubWord)).toEqual([
    "message_start",
    "+text",
    "A",
  ]);
});

test("what .done holds beyond the deltas is added, not said twice", () => {
  const done = { type: "response.output_text.done", output_index: 0, content_index: 0, text: "ABC" };
  expect(stepWords("responses", [delta(0, "A"), delta(0, "B"), done])).toEqual([
    ["message_start", "+text", "A"],
    ["B"],
    ["C", "-"],
  ]);
});

test("a message of very many parts takes little time to end, however often it is told to", () => {
  const reader = answerCodecs.responses.readStream(testContext());
  const step = (event: JsonObject) => reader.step({ event: "", data: JSON.stringify(event) });
  for (let part = 0; part < 60_000; part += 1) step({ ...delta(0, "A"), content_index: part });
  const item = { type: "message", role: "assistant", content: [] };
  const before = computedMs();
  for (let again = 0; again < 2_000; again += 1)
    step({ type: "response.output_item.done", output_index: 0, item });
  expect(computedMs() - before).toBeLessThan(1_000);
});

/** As llama.cpp sends them: no event has an index, and calls have no ids beside those of the calls. */
const unindexed = (() => {
  const event = (type: string, more: JsonObject): JsonObject => ({ type: `response.${type}`, ...more });
  const text = { type: "output_text", text: "On it.", annotations: [] };
  const items: JsonObject[] = [
    { type: "reasoning", id: "rs_1", summary: [], content: [{ type: "reasoning_text", text: "Hm." }] },
    { type: "message", id: "msg_1", role: "assistant", content: [text] },
    { type: "function_call", call_id: "fc_1", name: "look", arguments: '{"at":1}' },
    { type: "function_call", call_id: "fc_2", name: "look", arguments: '{"at":2}' },
  ];
  const added = (index: number) =>
    event("output_item.added", { item: { ...items[index], content: [], arguments: "" } });
  const of = { item_id: "msg_1" };
  return [
    event("created", { response: { id: "resp_1", status: "in_progress" } }),
    added(0),
    event("reasoning_text.delta", { item_id: "rs_1", delta: "Hm." }),
    added(1),
    event("content_part.added", { ...of, part: { type: "output_text", text: "" } }),
    event("output_text.delta", { ...of, delta: "On " }),
    event("output_text.delta", { ...of, delta: "it." }),
    added(2),
    event("function_call_arguments.delta", { item_id: "fc_1", delta: '{"at":' }),
    event("function_call_arguments.delta", { item_id: "fc_1", delta: "1}" }),
    added(3),
    event("function_call_arguments.delta", { item_id: "fc_2", delta: '{"at":2}' }),
    event("output_item.done", { item: items[0] ?? null }),
    event("output_text.done", { ...of, text: "On it." }),
    event("content_part.done", { ...of, part: text }),
    ...items.slice(1).map((item) => event("output_item.done", { item })),
    event("completed", { response: { status: "completed", output: items } }),
  ];
})();

test.each([
  ["with deltas", unindexed],
  [
    "without",
    ["reasoning", "message", "function_call"]
      .flatMap((kind) =>
        unindexed.filter(
          ({ type, item }) => type === "response.output_item.done" && (item as JsonObject)["type"] === kind,
        ),
      )
      .concat(unindexed.slice(-1)),
  ],
])("items that no index tells apart are told by their ids: %s", (_how, events) => {
  const reader = answerCodecs.responses.readStream(testContext());
  const message = new MessageAccumulator();
  for (const data of events)
    for (const said of reader.step({ event: "", data: JSON.stringify(data) })) message.push(said);
  expect(message.whole()).toMatchObject({
    content: [
      { type: "thinking", thinking: "Hm." },
      { type: "text", text: "On it." },
      { type: "tool_use", name: "look", input: { at: 1 } },
      { type: "tool_use", name: "look", input: { at: 2 } },
    ],
    stop_reason: "tool_use",
  });
});

/** As Ollama and others number them; `output`: what the last event holds. */
const collided = (output: JsonObject[]) => {
  const reasoning = { type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "Hm." }] };
  const call = { type: "function_call", id: "fc_1", call_id: "call_1", name: "look", arguments: "{}" };
  const text = { item_id: "msg_1", output_index: 1, content_index: 0 };
  return [
    { type: "response.output_item.done", output_index: 0, item: reasoning },
    { type: "response.output_text.delta", ...text, delta: "On it." },
    { type: "response.output_item.added", output_index: 1, item: { ...call, arguments: "" } },
    { type: "response.function_call_arguments.delta", output_index: 1, item_id: "fc_1", delta: "{}" },
    { type: "response.output_item.done", output_index: 1, item: call },
    { type: "response.completed", response: { status: "completed", output } },
  ];
};
const message = { type: "message", content: [{ type: "output_text", text: "On it." }] };
const called = { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" };

test.each([
  ["nothing", []],
  ["calls alone", [called]],
  ["no reasoning", [message, called]],
])("items of two kinds at one place are two, said once, where the whole output has %s", (_what, output) => {
  const reader = answerCodecs.responses.readStream(testContext());
  const said = new MessageAccumulator();
  for (const data of collided(output))
    for (const event of reader.step({ event: "", data: JSON.stringify(data) })) said.push(event);
  expect(said.whole()).toMatchObject({
    content: [
      { type: "thinking", thinking: "Hm." },
      { type: "text", text: "On it." },
      { type: "tool_use", id: "call_1", name: "look", input: {} },
    ],
    stop_reason: "tool_use",
  });
});

const callItem = (name: string, more: JsonObject): JsonObject => ({ type: "function_call", name, ...more });
const streamed = (event: string, output_index: number, item: JsonObject): JsonObject => ({
  type: `response.output_item.${event}`,
  output_index,
  item,
});
const completed = (output: JsonObject[]): JsonObject => ({
  type: "response.completed",
  response: { status: "completed", output },
});
const contentOf = (events: readonly JsonObject[]) => {
  const reader = answerCodecs.responses.readStream(testContext());
  const said = new MessageAccumulator();
  for (const data of events)
    for (const event of reader.step({ event: "", data: JSON.stringify(data) })) said.push(event);
  return said.whole()?.content;
};

describe("items of the whole output are told by their ids, else by their indexes or their order", () => {
  const thought = { type: "reasoning", summary: [{ type: "summary_text", text: "Hm." }] };
  const [a, b] = [callItem("fA", { call_id: "c_A" }), callItem("fB", { call_id: "c_B" })];
  const whole = [
    { ...a, arguments: '{"a":1}' },
    { ...b, arguments: '{"b":2}' },
  ];
  const both = [
    { type: "tool_use", id: "c_A", name: "fA", input: { a: 1 } },
    { type: "tool_use", id: "c_B", name: "fB", input: { b: 2 } },
  ];

  // A call that began without an id keeps the one that it was given then.
  describe.each([
    ["with ids", a, b, both],
    ["without", callItem("fA", {}), callItem("fB", {}), both.map(({ id: _id, ...call }) => call)],
  ])("%s", (_how, first, second, expected) => {
    test("where reasoning is left out of it", () => {
      const events = [
        streamed("done", 0, thought),
        streamed("added", 1, first),
        streamed("added", 2, second),
      ];
      expect(contentOf([...events, completed(whole)])).toMatchObject([{ type: "thinking" }, ...expected]);
    });

    test("where the events count each kind for itself", () => {
      const events = [delta(0, "On it."), streamed("added", 0, first), streamed("added", 1, second)];
      expect(contentOf([...events, completed([message, ...whole])])).toMatchObject([
        { type: "text", text: "On it." },
        ...expected,
      ]);
    });
  });

  test("calls in another order, and one that was never streamed", () => {
    const third = callItem("fC", { call_id: "c_C", arguments: "{}" });
    const events = [streamed("added", 0, a), streamed("added", 1, b)];
    expect(contentOf([...events, completed([third, ...whole.toReversed()])])).toMatchObject([
      ...both,
      { type: "tool_use", id: "c_C", name: "fC", input: {} },
    ]);
  });

  test("a message that only its deltas name, behind one that was never streamed", () => {
    const said = (id: string, text: string) => ({ ...message, id, content: [{ type: "output_text", text }] });
    const events = [
      { ...delta(1, "On "), item_id: "msg_B" },
      { ...delta(1, "it."), item_id: "msg_B" },
    ];
    expect(contentOf([...events, completed([said("msg_A", ""), said("msg_B", "On it.")])])).toEqual([
      expect.objectContaining({ text: "On it." }),
    ]);
  });

  test("messages that share one id are told by their indexes", () => {
    const said = (text: string) => ({ ...message, id: "msg", content: [{ type: "output_text", text }] });
    const events = [
      streamed("added", 0, { ...said(""), content: [] }),
      delta(0, "On"),
      streamed("done", 1, { ...whole[0] }),
      streamed("added", 2, { ...said(""), content: [] }),
      delta(2, "Of"),
    ];
    expect(
      contentOf([...events, completed([said("On it."), ...whole.slice(0, 1), said("Off it.")])]),
    ).toEqual([
      expect.objectContaining({ text: "On it." }),
      expect.objectContaining(both[0]),
      expect.objectContaining({ text: "Off it." }),
    ]);
  });
});

describe("an id that is not known, without an index, is that of the item that was added last", () => {
  const added = (item: JsonObject): JsonObject => ({ type: "response.output_item.added", item });
  const args = (item_id: string, json: string): JsonObject => ({
    type: "response.function_call_arguments.delta",
    item_id,
    delta: json,
  });
  const done = (item: JsonObject): JsonObject => ({ type: "response.output_item.done", item });
  const calls = [
    { type: "tool_use", name: "fA", input: { a: 1 } },
    { type: "tool_use", name: "fB", input: { b: 2 } },
  ];

  test.each([
    ["of the call alone", { call_id: "c_A" }, { call_id: "c_B" }],
    ["that is another one later", { id: "x_A", call_id: "c_A" }, { id: "x_B", call_id: "c_B" }],
  ])("calls that were added with an id %s", (_how, first, second) => {
    const events = [
      added(callItem("fA", first)),
      args("fc_A", '{"a":'),
      added(callItem("fB", second)),
      args("fc_B", '{"b":'),
      args("fc_A", "1}"),
      args("fc_B", "2}"),
    ];
    expect(contentOf([...events, completed([])])).toMatchObject(calls);
  });

  test("a message whose end alone has an id", () => {
    const text = { type: "response.output_text.delta", content_index: 0, delta: "On " };
    const events = [added({ type: "message", content: [] }), text, done({ ...message, id: "msg_1" })];
    expect(contentOf([...events, completed([])])).toMatchObject([{ type: "text", text: "On it." }]);
  });

  test("but not of one that is over", () => {
    const events = [
      added(callItem("fA", { id: "fc_A", call_id: "c_A" })),
      done(callItem("fA", { id: "fc_A", call_id: "c_A", arguments: '{"a":1}' })),
      args("fc_B", '{"b":2}'),
      done(callItem("fB", { id: "fc_B", call_id: "c_B", arguments: '{"b":2}' })),
    ];
    expect(contentOf([...events, completed([])])).toMatchObject(calls);
  });
});

test("a response that was cancelled is a failure", () => {
  expect(() => stepWords("responses", [{ type: "response.cancelled", response: {} }])).toThrow(ApiError);
});
