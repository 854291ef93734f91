/** A Chat upstream's stream: order and delay, which golden files do not show (rules 2.13–2.14, dialects.md §D5). */
import { describe, expect, test } from "vitest";
import { computedMs } from "../../../test/fakes/computed.ts";
import { testContext } from "../../../test/grammar/convert.ts";
import { stepWords } from "../../../test/grammar/step-words.ts";
import { ApiError } from "../../lib/api-error.ts";
import { answerCodecs } from "../answer-codecs.ts";
import { MessageAccumulator } from "../messages/accumulate.ts";
import type { JsonObject, UrlCitation } from "../messages/types.ts";

const chunk = (delta: JsonObject, finish: string | null = null): JsonObject => ({
  choices: [{ index: 0, delta, finish_reason: finish }],
});
const call = (index: number, args: string, head: JsonObject = {}): JsonObject =>
  chunk({
    tool_calls: [{ index, ...head, function: { ...(head["function"] as JsonObject), arguments: args } }],
  });
const named = (name: string) => ({ id: `call_${name}`, type: "function", function: { name } });

test("the first token passes with the first chunk", () => {
  expect(stepWords("chat", [chunk({ role: "assistant", content: "A" })])).toEqual([
    ["message_start", "+text", "A"],
  ]);
});

const looks = { name: "look", arguments: "{}" };
test.each([
  ["an empty list of calls", []],
  ["a list that says it too", [{ index: 0, id: "call_1", type: "function", function: looks }]],
])("a call in the old form beside %s is one, whole as well as streamed", (_, tool_calls) => {
  const message = { role: "assistant", tool_calls, function_call: looks };
  expect(stepWords("chat", [chunk(message), "[DONE]"]).flat()).toEqual([
    "message_start",
    "+tool_use",
    "{}",
    "-",
    "tool_use",
    "message_stop",
  ]);
  const whole = { choices: [{ index: 0, message, finish_reason: "function_call" }] };
  expect(answerCodecs.chat.readResponse(whole, testContext())).toMatchObject({
    content: [{ type: "tool_use", name: "look", input: {} }],
    stop_reason: "tool_use",
  });
});

test("texts and reasoning between them keep their order, as parts of one message and in deltas", () => {
  const text = (said: string) => ({ type: "text", text: said });
  const thinking = (said: string) => ({ type: "thinking", thinking: [text(said)] });
  const parts = [text("A"), thinking("b"), thinking("c"), text("D"), text(""), text("E"), thinking("f")];
  const message = { role: "assistant", content: parts };
  const reasoned = "+thinking thinking_delta signature_delta -";
  expect(
    stepWords("chat", [chunk(message), "[DONE]"])
      .flat()
      .join(" "),
  ).toContain(`+text A - ${reasoned} +text DE - ${reasoned} end_turn`);
  const deltas = parts.map((part) => chunk({ content: [part] }));
  expect(
    stepWords("chat", [...deltas, "[DONE]"])
      .flat()
      .join(" "),
  ).toContain("+text A - +thinking thinking_delta thinking_delta signature_delta - +text D E - +thinking");
  const context = { ...testContext(), annotations: true, logprobs: true };
  const cite = (start: number) => ({
    type: "url_citation",
    start_index: start,
    end_index: start + 1,
    url: "u",
  });
  const token = (said: string) => ({
    token: said,
    logprob: -1,
    bytes: [...Buffer.from(said)],
    top_logprobs: [],
  });
  const whole = answerCodecs.chat.readResponse(
    {
      choices: [
        {
          index: 0,
          message: { ...message, annotations: [cite(2), cite(0), cite(7)] },
          logprobs: { content: ["A", "D", "E"].map(token) },
          finish_reason: "stop",
        },
      ],
    },
    context,
  );
  expect(whole.content).toMatchObject([
    { type: "text", text: "A", annotations: [{ start_index: 0 }], logprobs: [{ token: "A" }] },
    { type: "thinking", thinking: "bc" },
    {
      type: "text",
      text: "DE",
      annotations: [{ start_index: 1 }, { start_index: 6 }],
      logprobs: [{ token: "D" }, { token: "E" }],
    },
    { type: "thinking", thinking: "f" },
  ]);
});

test("rule 10.6: the usage behind an event that is no JSON counts where the answer is whole already", () => {
  const reader = answerCodecs.chat.readStream(testContext());
  const usage = { prompt_tokens: 5, completion_tokens: 9, total_tokens: 14 };
  const events = [chunk({ content: "A" }), chunk({}, "stop"), "{bad", { choices: [], usage }, "[DONE]"];
  for (const one of events)
    reader.step({ event: "", data: typeof one === "string" ? one : JSON.stringify(one) });
  expect(reader.usage).toMatchObject({ input_tokens: 5, output_tokens: 9 });
  expect(() => stepWords("chat", [chunk({ content: "A" }), "{bad"])).toThrow(ApiError);
});

test("an empty delta opens no block", () => {
  expect(
    stepWords("chat", [chunk({ content: "" }), chunk({ content: null, reasoning_content: "" })]),
  ).toEqual([["message_start"], []]);
});

test("a second call's arguments flow as soon as the first call's are whole", () => {
  expect(
    stepWords("chat", [
      call(0, "", named("a")),
      call(0, '{"x":'),
      call(0, "1}"),
      call(1, "", named("b")),
      call(1, '{"y"'),
      call(1, ":2}"),
      "[DONE]",
    ]),
  ).toEqual([
    ["message_start", "+tool_use"],
    ['{"x":'],
    ["1}"],
    ["-", "+tool_use"],
    ['{"y"'],
    [":2}"],
    ["-", "tool_use", "message_stop"],
  ]);
});

test("a call waits for citations of the text before it only where they are shown, and not long", () => {
  const said = [
    chunk({ content: "A" }),
    call(0, '{"x":"', named("a")),
    call(0, "y".repeat(1_100)),
    call(0, '"}'),
  ];
  const types = (annotations: boolean) => {
    const reader = answerCodecs.chat.readStream({ ...testContext(), annotations });
    return said.map((one) =>
      reader
        .step({ event: "", data: JSON.stringify(one) })
        .map(({ type }) => type.replace("content_block_", "")),
    );
  };
  expect(types(false)).toEqual([
    ["message_start", "start", "delta"],
    ["stop", "start", "delta"],
    ["delta"],
    ["delta"],
  ]);
  expect(types(true)).toEqual([
    ["message_start", "start", "delta"],
    [],
    ["stop", "start", "delta"],
    ["delta"],
  ]);
});

const part = (type: "text" | "thinking", said: string): JsonObject =>
  type === "text" ? { type, text: said } : { type, thinking: [{ type: "text", text: said }] };

test("a citation that is told before its text stands in that text, as in a whole answer", () => {
  const context = { ...testContext(), annotations: true };
  const annotations = [0, 2, 9].map((start_index) => ({
    type: "url_citation",
    url_citation: {
      start_index,
      end_index: start_index + 1,
      url: `https://${start_index}.example/`,
      title: "",
    },
  }));
  const content = [part("text", "Ab"), part("thinking", "hm"), part("text", "Cd")];
  const reader = answerCodecs.chat.readStream(context);
  const said = [
    { annotations: annotations.slice(0, 1) },
    ...content.map((one) => ({ content: [one], annotations })),
  ];
  const streamed: UrlCitation[][] = [[], [], []];
  for (const data of [...said.map((delta) => JSON.stringify(chunk(delta))), "[DONE]"])
    for (const event of reader.step({ event: "", data }))
      if (event.type === "content_block_delta" && event.delta.type === "annotations_delta")
        streamed[event.index]?.push(...event.delta.annotations);
  const message = { role: "assistant", content, annotations };
  const whole = answerCodecs.chat.readResponse({ choices: [{ message, finish_reason: "stop" }] }, context);
  expect(streamed).toEqual(whole.content.map((block) => ("annotations" in block ? block.annotations : [])));
  expect(streamed.map((list) => list.map(({ start_index }) => start_index))).toEqual([[0], [], [0, 7]]);
});

test("of several texts in one delta each has the log probabilities of its own tokens", () => {
  const logprobs = {
    content: ["A", "b", "C", "d"].map((token) => ({ token, logprob: -1, top_logprobs: [] })),
  };
  const content = [part("text", "Ab"), part("thinking", "hm"), part("text", "Cd")];
  const choice = { index: 0, delta: { content }, logprobs };
  const reader = answerCodecs.chat.readStream({ ...testContext(), logprobs: true });
  const events = reader.step({ event: "", data: JSON.stringify({ choices: [choice] }) });
  const tokens = events.flatMap((event) =>
    event.type === "content_block_delta" && event.delta.type === "text_delta"
      ? [event.delta.logprobs?.map(({ token }) => token).join("")]
      : [],
  );
  expect(tokens).toEqual(["Ab", "Cd"]);
});

describe("calls stand in the order of their indexes (dialects.md §D5)", () => {
  const inOrder = (indexes: readonly number[]) => {
    const reader = answerCodecs.chat.readStream(testContext());
    const events = [
      ...indexes.map((index) => call(index, '{"x":', named(`${index}`))),
      ...indexes.map((index) => call(index, `${index}}`)),
      "[DONE]",
    ].flatMap((one) => reader.step({ event: "", data: typeof one === "string" ? one : JSON.stringify(one) }));
    const streamed = new MessageAccumulator();
    for (const event of events) streamed.push(event);
    return streamed.whole()?.content;
  };

  test.each([[[1, 0]], [[2, 0, 1]], [[0, 2, 1]], [[3, 1, 2, 0]], [[5, 2]], [[1]], [[7, 0]], [[0, 1, 2]]])(
    "that come as %j",
    (indexes) => {
      const sorted = [...indexes].sort((one, other) => one - other);
      expect(inOrder(indexes)).toMatchObject(
        sorted.map((index) => ({ name: `${index}`, input: { x: index } })),
      );
    },
  );

  test("a call waits for none where a server counts texts and reasoning as well", () => {
    const begun = (index: number, name: string) => [
      call(index, '{"x":', named(name)),
      call(index, `${index}}`),
    ];
    expect(
      stepWords("chat", [
        chunk({ reasoning_content: "hm" }),
        chunk({ content: "A" }),
        ...begun(2, "a"),
        ...begun(3, "b"),
      ]).slice(2),
    ).toEqual([["-", "+tool_use", '{"x":'], ["2}"], ["-", "+tool_use", '{"x":'], ["3}"]]);
  });

  test("a call waits only for those that may still come before it", () => {
    expect(
      stepWords("chat", [
        call(1, "{}", named("b")),
        call(0, "{}", named("a")),
        chunk({ content: "A" }),
        "[DONE]",
      ]),
    ).toEqual([
      ["message_start"],
      ["+tool_use", "{}", "-", "+tool_use", "{}"],
      ["-", "+text", "A"],
      ["-", "tool_use", "message_stop"],
    ]);
  });
});

test("a call that goes on after it was whole is a fault, white space is not", () => {
  const begun = [call(0, '{"x":1}', named("a")), call(1, "{}", named("b"))];
  expect(() => stepWords("chat", [...begun, call(0, " \n")])).not.toThrow();
  expect(() => stepWords("chat", [...begun, call(0, ',"z":1}')])).toThrow(ApiError);
});

test("rule 7.3: a long call that never ends takes little time while another waits for it", () => {
  const reader = answerCodecs.chat.readStream(testContext());
  const step = (event: JsonObject) => reader.step({ event: "", data: JSON.stringify(event) });
  step(call(0, `{"x":[${"1,".repeat(1_000_000)}`, named("a")));
  step(call(1, "{", named("b")));
  const before = computedMs();
  for (let again = 0; again < 300; again += 1) step(call(0, "{}"));
  expect(computedMs() - before).toBeLessThan(1_000);
});

test.each([
  [['{"x":"a}', '\\"}', '"', "}"], 3],
  [['{"x":"\\', '\\"}'], 1],
  [['{"x":[{}', "]", ",1"], null],
  [['{"x":{"y":{}', "}", "}", " "], 2],
  [["[{}", "]", "{}"], null],
] as const)("a call %j lets the next begin with the piece that makes it whole", (pieces, last) => {
  const [first, ...more] = pieces;
  const steps = stepWords("chat", [
    call(0, first, named("a")),
    chunk({ content: "A" }),
    ...more.map((piece) => call(0, piece)),
  ]);
  const at = steps.findIndex((words) => words.includes("+text"));
  expect(at === -1 ? null : at - 1).toBe(last);
});

describe("calls without an index, or with index 0 for each", () => {
  const bare = (id: string | null, name: string | null, args: string, index?: number): JsonObject => ({
    ...(index === undefined ? {} : { index }),
    ...(id === null ? {} : { id }),
    function: { ...(name === null ? {} : { name }), arguments: args },
  });
  /** Each call's id, name and arguments. */
  function calls(...deltas: readonly JsonObject[]): string[] {
    const reader = answerCodecs.chat.readStream(testContext());
    const chunks = [...deltas.map((delta) => chunk({ tool_calls: [delta] })), chunk({}, "tool_calls")];
    const events = chunks.flatMap((data) => reader.step({ event: "", data: JSON.stringify(data) }));
    const found: string[] = [];
    for (const event of [...events, ...reader.step({ event: "", data: "[DONE]" })]) {
      if (event.type === "content_block_start" && event.content_block.type === "tool_use")
        found.push(`${event.content_block.id} ${event.content_block.name} `);
      if (event.type === "content_block_delta" && event.delta.type === "input_json_delta")
        found.push(`${found.pop() ?? ""}${event.delta.partial_json}`);
    }
    return found;
  }
  const both = ['call_a f {"x":1}', 'call_b g {"y":2}'];

  test("an id on each delta: the same one goes on, a new one is a new call", () => {
    expect(
      calls(
        bare("call_a", "f", '{"x"'),
        bare("call_a", null, ":1}"),
        bare("call_b", "g", '{"y"'),
        bare("call_b", "g", ":2}"),
      ),
    ).toEqual(both);
  });

  test.each([undefined, 0])("an id goes on with its call when another one has begun: index %s", (index) => {
    expect(
      calls(
        bare("call_a", "f", '{"x"', index),
        bare("call_b", "g", '{"y"', index),
        bare("call_a", null, ":1}", index),
        bare("call_b", null, ":2}", index),
      ),
    ).toEqual(both);
  });

  test("a new id is a new call though its name comes later", () => {
    expect(
      calls(bare("call_a", "f", '{"x":1}'), bare("call_b", null, '{"y"'), bare("call_b", "g", ":2}")),
    ).toEqual(both);
  });

  test.each([
    [null, undefined],
    [null, 0],
    ["same", undefined],
  ] as const)("whole calls with the id %s and the index %s stay apart", (id, index) => {
    const found = calls(bare(id, "f", '{"x":1}', index), bare(id, "g", '{"y":2}', index));
    expect(found.map((each) => each.replace(/^\S+ /, ""))).toEqual(['f {"x":1}', 'g {"y":2}']);
    expect(new Set(found.map((each) => each.split(" ")[0]))).toHaveLength(2);
  });

  test("a whole call that comes once more is one call", () => {
    const whole = bare("call_a", "f", '{"x":1}');
    expect(calls(whole, whole, bare("call_b", "g", '{"y":2}'), whole)).toEqual(both);
    // Without an id they are two calls alike.
    const nameless = bare(null, "f", '{"x":1}');
    expect(calls(nameless, nameless)).toHaveLength(2);
  });

  // Parsed with each piece, they would not be done within the test's time.
  test("half a megabyte of arguments in small pieces, each with the name, is one call", () => {
    const pieces = Array.from({ length: 60_000 }, () => bare(null, "f", "{call(); }", 0));
    const found = calls(bare(null, "f", '{"code":"', 0), ...pieces, bare(null, "f", '"}', 0));
    expect(found).toHaveLength(1);
    expect(found[0]).toMatch(/^\S+ f \{"code":"(\{call\(\); \})+"\}$/);
  });

  test("a long call whose beginning comes again and again takes little time", () => {
    const reader = answerCodecs.chat.readStream(testContext());
    const step = (args: string) =>
      reader.step({ event: "", data: JSON.stringify(chunk({ tool_calls: [bare("call_a", "f", args)] })) });
    const whole = `{"x":[${"1,".repeat(1_000_000)}1]}`;
    step(whole);
    const before = computedMs();
    for (let again = 0; again < 600; again += 1) expect(step(whole.slice(0, 10_000))).toEqual([]);
    expect(computedMs() - before).toBeLessThan(1_000);
  });

  test("engines that call all calls alike tell them by their index", () => {
    const found = calls(bare("same", "f", '{"x":1}', 0), bare("same", "g", '{"y":2}', 1));
    expect(found.map((each) => each.replace(/^\S+ /, ""))).toEqual(['f {"x":1}', 'g {"y":2}']);
  });

  test("a new id on each delta of an indexed call is one call", () => {
    expect(calls(bare("call_a", "f", '{"x"', 0), bare("call_z", null, ":1}", 0))).toEqual([both[0]]);
  });
});

test("text after a call waits for it and is not lost", () => {
  expect(
    stepWords("chat", [
      call(0, "{", named("a")),
      chunk({ content: "Hm" }),
      call(0, "}"),
      chunk({}, "stop"),
      "[DONE]",
    ]),
  ).toEqual([
    ["message_start", "+tool_use", "{"],
    [],
    ["}", "-", "+text", "Hm"],
    [],
    ["-", "tool_use", "message_stop"],
  ]);
});

test("a call that the output limit cut ends as it came, and only if it is the last (dialects.md §D3)", () => {
  const begun = [call(0, '{"x":', named("a"))];
  expect(stepWords("chat", [...begun, chunk({}, "length"), "[DONE]"])).toEqual([
    ["message_start", "+tool_use", '{"x":'],
    [],
    ["-", "max_tokens", "message_stop"],
  ]);
  expect(() =>
    stepWords("chat", [...begun, call(1, "{", named("b")), chunk({}, "length"), "[DONE]"]),
  ).toThrow(ApiError);
  // What is whole can be run, whatever the upstream calls the end.
  expect(stepWords("chat", [call(0, "{}", named("a")), chunk({}, "length"), "[DONE]"]).at(-1)).toEqual([
    "-",
    "tool_use",
    "message_stop",
  ]);
});

test("a call that never gets a name is a fault", () => {
  expect(() => stepWords("chat", [call(0, "{}", { id: "call_a" }), "[DONE]"])).toThrow(ApiError);
});

test("an empty call is none", () => {
  const empty = chunk({ content: "A", tool_calls: [{ index: 0, function: { arguments: "" } }] });
  expect(stepWords("chat", [empty, chunk({}, "stop"), "[DONE]"])).toEqual([
    ["message_start", "+text", "A"],
    [],
    ["-", "end_turn", "message_stop"],
  ]);
});

test.each([{ type: "function", function: { name: "", arguments: "" } }, { id: "", function: {} }, {}])(
  "nor is one in a whole answer: %j",
  (empty) => {
    const message = { content: "A", tool_calls: [empty] };
    const whole = { choices: [{ message, finish_reason: "stop" }] };
    expect(answerCodecs.chat.readResponse(whole, testContext())).toMatchObject({
      content: [{ type: "text", text: "A" }],
      stop_reason: "end_turn",
    });
  },
);

test("the output of an answer is counted however deep what a call holds nests", () => {
  const deep: unknown = JSON.parse(`${'{"a":'.repeat(1_000)}1${"}".repeat(1_000)}`);
  const message = { tool_calls: [{ type: "function", function: { arguments: deep as JsonObject } }] };
  expect(answerCodecs.chat.written({ choices: [{ message }] }).tokens).toBeGreaterThan(100);
});

test("choices other than the first are not read", () => {
  const second = { choices: [{ index: 1, delta: { content: "B" }, finish_reason: "stop" }] };
  expect(stepWords("chat", [chunk({ content: "A" }), second])).toEqual([["message_start", "+text", "A"], []]);
});

test.each([
  ["sensitive", "refusal"],
  ["model_context_window_exceeded", "max_tokens"],
])("finish_reason %s is known, streamed and whole", (finish, stop) => {
  expect(stepWords("chat", [chunk({ content: "A" }), chunk({}, finish), "[DONE]"]).flat()).toContain(stop);
  const whole = { choices: [{ message: { content: "A" }, finish_reason: finish }] };
  expect(answerCodecs.chat.readResponse(whole, testContext()).stop_reason).toBe(stop);
});

test.each(["error", "insufficient_system_resource", "network_error"])(
  "finish_reason %s is a failure",
  (finish) => {
    expect(() => stepWords("chat", [chunk({ content: "A" }), chunk({}, finish), "[DONE]"])).toThrow(ApiError);
  },
);
