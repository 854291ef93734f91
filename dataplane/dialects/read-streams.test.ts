/** Stream readers: order and delay, which golden files do not show (rules 2.13–2.14, dialects.md §D5). */
import { describe, expect, test } from "vitest";
import { convertStream, convertWhole, testCarry, testContext } from "../../test/grammar/convert.ts";
import { ApiError } from "../lib/api-error.ts";
import { answerCodecs } from "./answer-codecs.ts";
import type { Dialect } from "./dialect.ts";
import { MessageAccumulator } from "./messages/accumulate.ts";
import type { JsonObject, MessagesEvent } from "./messages/types.ts";

/** What each of the upstream's events leads to, in one word per event of the hub. */
function steps(from: Dialect, events: readonly (JsonObject | string)[]): string[][] {
  const reader = answerCodecs[from].readStream(testContext());
  return events.map((data) =>
    reader
      .step({ event: "", data: typeof data === "string" ? data : JSON.stringify(data) })
      .map((event) => word(event)),
  );
}

function word(event: MessagesEvent): string {
  if (event.type === "content_block_start") return `+${event.content_block.type}`;
  if (event.type === "content_block_stop") return "-";
  if (event.type === "message_delta") return String(event.delta.stop_reason);
  if (event.type !== "content_block_delta") return event.type;
  const { delta } = event;
  if (delta.type === "text_delta") return delta.text;
  if (delta.type === "input_json_delta") return delta.partial_json;
  return delta.type;
}

const chunk = (delta: JsonObject, finish: string | null = null): JsonObject => ({
  choices: [{ index: 0, delta, finish_reason: finish }],
});
const call = (index: number, args: string, head: JsonObject = {}): JsonObject =>
  chunk({
    tool_calls: [{ index, ...head, function: { ...(head["function"] as JsonObject), arguments: args } }],
  });
const named = (name: string) => ({ id: `call_${name}`, type: "function", function: { name } });

describe("a Chat upstream", () => {
  test("the first token passes with the first chunk", () => {
    expect(steps("chat", [chunk({ role: "assistant", content: "A" })])).toEqual([
      ["message_start", "+text", "A"],
    ]);
  });

  const looks = { name: "look", arguments: "{}" };
  test.each([
    ["an empty list of calls", []],
    ["a list that says it too", [{ index: 0, id: "call_1", type: "function", function: looks }]],
  ])("a call in the old form beside %s is one, whole as well as streamed", (_, tool_calls) => {
    const message = { role: "assistant", tool_calls, function_call: looks };
    expect(steps("chat", [chunk(message), "[DONE]"]).flat()).toEqual([
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

  test("an empty delta opens no block", () => {
    expect(steps("chat", [chunk({ content: "" }), chunk({ content: null, reasoning_content: "" })])).toEqual([
      ["message_start"],
      [],
    ]);
  });

  test("a second call's arguments flow as soon as the first call's are whole", () => {
    expect(
      steps("chat", [
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

  test("a call that goes on after it was whole is a fault, white space is not", () => {
    const begun = [call(0, '{"x":1}', named("a")), call(1, "{}", named("b"))];
    expect(() => steps("chat", [...begun, call(0, " \n")])).not.toThrow();
    expect(() => steps("chat", [...begun, call(0, ',"z":1}')])).toThrow(ApiError);
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
      steps("chat", [
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
    expect(steps("chat", [...begun, chunk({}, "length"), "[DONE]"])).toEqual([
      ["message_start", "+tool_use", '{"x":'],
      [],
      ["-", "max_tokens", "message_stop"],
    ]);
    expect(() => steps("chat", [...begun, call(1, "{", named("b")), chunk({}, "length"), "[DONE]"])).toThrow(
      ApiError,
    );
    // What is whole can be run, whatever the upstream calls the end.
    expect(steps("chat", [call(0, "{}", named("a")), chunk({}, "length"), "[DONE]"]).at(-1)).toEqual([
      "-",
      "tool_use",
      "message_stop",
    ]);
  });

  test("a call that never gets a name is a fault", () => {
    expect(() => steps("chat", [call(0, "{}", { id: "call_a" }), "[DONE]"])).toThrow(ApiError);
  });

  test("an empty call is none", () => {
    const empty = chunk({ content: "A", tool_calls: [{ index: 0, function: { arguments: "" } }] });
    expect(steps("chat", [empty, chunk({}, "stop"), "[DONE]"])).toEqual([
      ["message_start", "+text", "A"],
      [],
      ["-", "end_turn", "message_stop"],
    ]);
  });

  test("choices other than the first are not read", () => {
    const second = { choices: [{ index: 1, delta: { content: "B" }, finish_reason: "stop" }] };
    expect(steps("chat", [chunk({ content: "A" }), second])).toEqual([["message_start", "+text", "A"], []]);
  });

  test.each([
    ["sensitive", "refusal"],
    ["model_context_window_exceeded", "max_tokens"],
  ])("finish_reason %s is known, streamed and whole", (finish, stop) => {
    expect(steps("chat", [chunk({ content: "A" }), chunk({}, finish), "[DONE]"]).flat()).toContain(stop);
    const whole = { choices: [{ message: { content: "A" }, finish_reason: finish }] };
    expect(answerCodecs.chat.readResponse(whole, testContext()).stop_reason).toBe(stop);
  });

  test.each(["error", "insufficient_system_resource", "network_error"])(
    "finish_reason %s is a failure",
    (finish) => {
      expect(() => steps("chat", [chunk({ content: "A" }), chunk({}, finish), "[DONE]"])).toThrow(ApiError);
    },
  );
});

describe("a Messages upstream", () => {
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
    expect(events.filter((event) => "index" in event).map((event) => event.index)).toEqual([
      0, 0, 0, 1, 1, 1,
    ]);
  });

  test("the same message_start twice is one, another one is a fault and not a second message", () => {
    expect(steps("messages", [start, start])).toEqual([["message_start"], []]);
    const other = { type: "message_start", message: { id: "msg_2" } };
    expect(() => steps("messages", [start, other])).toThrow(ApiError);
    const begun = [start, block(0, { type: "text", text: "" })];
    expect(() => steps("messages", [...begun, start])).toThrow(ApiError);
  });

  test("blocks that stand in message_start already are said", () => {
    const content = [
      { type: "text", text: "A" },
      { type: "tool_use", id: "toolu_1", name: "look", input: { at: "it" } },
    ];
    const full = { type: "message_start", message: { id: "msg_1", content, stop_reason: "tool_use" } };
    expect(steps("messages", [full, { type: "message_stop" }])).toEqual([
      ["message_start", "+text", "A", "-", "+tool_use", '{"at":"it"}', "-"],
      ["tool_use", "message_stop"],
    ]);
  });

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
    expect(steps("messages", [start, ...begun, text(1, "A"), signature, text(1, "B")]).slice(-3)).toEqual([
      ["A"],
      [],
      ["B"],
    ]);
    const signed = { ...signature, delta: { ...signature.delta, signature: "sig" } };
    expect(() => steps("messages", [start, ...begun, signed])).toThrow(ApiError);
  });

  test("a block's stop that comes once the next one has begun ends nothing else", () => {
    const stop = (index: number) => ({ type: "content_block_stop", index });
    const begun = [block(0, { type: "text", text: "" }), text(0, "A"), block(1, { type: "text", text: "" })];
    expect(steps("messages", [start, ...begun, stop(0), text(1, "B"), stop(1)])).toEqual([
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
    expect(() => steps("messages", [...closed, text(0, "A")])).toThrow(ApiError);
  });

  test("an end without a stop reason has one all the same", () => {
    expect(steps("messages", [start, { type: "message_stop" }])).toEqual([
      ["message_start"],
      ["end_turn", "message_stop"],
    ]);
  });
});

describe("a Responses upstream", () => {
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
    expect(reader.step({ event: type, data: JSON.stringify(data) }).map(word)).toEqual([
      "message_start",
      "+text",
      "A",
    ]);
  });

  test("what .done holds beyond the deltas is added, not said twice", () => {
    const done = { type: "response.output_text.done", output_index: 0, content_index: 0, text: "ABC" };
    expect(steps("responses", [delta(0, "A"), delta(0, "B"), done])).toEqual([
      ["message_start", "+text", "A"],
      ["B"],
      ["C", "-"],
    ]);
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

  test("a response that was cancelled is a failure", () => {
    expect(() => steps("responses", [{ type: "response.cancelled", response: {} }])).toThrow(ApiError);
  });
});

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
    expect(() => steps(from, ['{"type":"x"'])).toThrow(ApiError);
  });
});

describe("arguments that nest too deep to be written again are a fault, not a crash", () => {
  const deep = `${'{"a":'.repeat(5_000)}1${"}".repeat(5_000)}`;
  const parsed = JSON.parse(deep) as JsonObject;

  test("in a stream", () => {
    expect(() => steps("chat", [call(0, deep, named("a")), "[DONE]"])).toThrow(ApiError);
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
