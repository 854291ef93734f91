/** Laws that hold for every answer, in each of the nine cells (part 6, *Shown by*). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { accumulated } from "../../test/grammar/sdk-judges.ts";
import {
  convertStream,
  convertWhole,
  eventsOf,
  faultsOf,
  testCarry,
  testContext,
} from "../../test/grammar/convert.ts";
import { framesOf } from "../../test/grammar/sse.ts";
import { scriptedBody, scriptedStream, uncut } from "../../test/grammar/scripted-answer.ts";
import type { Cut, ScriptedAnswer, ScriptedBlock } from "../../test/grammar/scripted-answer.ts";
import { ApiError } from "../lib/api-error.ts";
import { SseReader } from "../lib/sse.ts";
import { answerCodecs } from "./answer-codecs.ts";
import type { SseEvent } from "./codecs.ts";
import { dialects } from "./dialect.ts";
import { stringOf } from "./fields.ts";
import type { Dialect } from "./dialect.ts";
import { MessageAccumulator } from "./messages/accumulate.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";
import { runs } from "../../test/fakes/runs.ts";

const cells = dialects.flatMap((from) => dialects.map((to) => ({ from, to })));

const text = fc.oneof(fc.string({ minLength: 1 }), fc.string({ minLength: 1, unit: "grapheme" }));
const input = fc
  .dictionary(fc.stringMatching(/^[a-z_]{1,8}$/), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 4 })
  // JSON has no negative zero.
  .map((value) => JSON.parse(JSON.stringify(value)) as JsonObject);
const tool: fc.Arbitrary<ScriptedBlock> = fc.record({
  kind: fc.constant("tool" as const),
  id: fc.stringMatching(/^[A-Za-z0-9_-]{1,20}$/),
  name: fc.stringMatching(/^[a-z_]{1,12}$/),
  input,
});

/** Thinking, then text, then calls: the order that all three dialects can say. */
const answers: fc.Arbitrary<ScriptedAnswer> = fc
  .record({
    thinking: fc.option(text, { nil: null }),
    text: fc.option(text, { nil: null }),
    tools: fc.uniqueArray(tool, {
      maxLength: 3,
      selector: (block) => (block.kind === "tool" ? block.id : ""),
    }),
    isCut: fc.boolean(),
    usage: fc.record({
      input: fc.integer({ min: 50, max: 9_999 }),
      cached: fc.nat(50),
      output: fc.nat(9_999),
    }),
  })
  .map(({ thinking, text, tools, isCut, usage }) => ({
    blocks: [
      ...(thinking === null ? [] : [{ kind: "thinking" as const, text: thinking, opaque: "opaque==" }]),
      ...(text === null ? [] : [{ kind: "text" as const, text }]),
      ...tools,
    ],
    stop: tools.length > 0 ? ("tools" as const) : isCut ? ("length" as const) : ("end" as const),
    usage,
  }));

/** Pieces of at most `size` UTF-16 units, so that surrogate pairs are cut through as well. */
const cutInto =
  (size: number): Cut =>
  (whole) =>
    Array.from({ length: Math.ceil(whole.length / size) }, (_, index) =>
      whole.slice(index * size, (index + 1) * size),
    );

const carryFor = (dialect: Dialect) =>
  testCarry(dialect, {
    stream_options: { include_usage: true },
    include: ["reasoning.encrypted_content"],
  });

/** What an SDK adds, what a stream cannot say, and ids that are made anew are left out of the comparison. */
const comparable: Record<Dialect, (answer: JsonObject) => JsonValue> = {
  messages: (answer) => {
    const { id: _, parsed_output: __, ...rest } = answer;
    const content = (rest["content"] as JsonObject[]).map(({ parsed_output: ___, ...block }) => block);
    return { ...rest, content };
  },
  chat: (answer) => {
    const { choices, model, usage } = answer as Record<string, JsonValue>;
    const [choice] = choices as JsonObject[];
    const message = choice?.["message"] as JsonObject;
    return {
      model: model ?? null,
      usage: usage ?? null,
      finish: choice?.["finish_reason"] ?? null,
      // The role chunk's empty content stands for none.
      content: message["content"] === "" ? null : (message["content"] ?? null),
      calls: ((message["tool_calls"] ?? []) as JsonObject[]).map((call) => {
        const { name, arguments: args } = call["function"] as JsonObject;
        return {
          id: call["id"] ?? null,
          name: name ?? null,
          arguments: JSON.parse(stringOf(args) ?? "") as JsonValue,
        };
      }),
    };
  },
  responses: (answer) => {
    const { status, incomplete_details, model, output, usage } = answer as Record<string, JsonValue>;
    const items = (output as JsonObject[]).map(({ id: _, parsed_arguments: __, ...item }) => ({
      ...item,
      ...(item["type"] === "message"
        ? {
            content: (item["content"] as JsonObject[]).map(({ parsed: ___, ...part }) => part),
          }
        : {}),
      ...(item["type"] === "function_call"
        ? { arguments: JSON.parse(stringOf(item["arguments"]) ?? "") as JsonValue }
        : {}),
    }));
    return {
      status: status ?? null,
      incomplete: incomplete_details ?? null,
      model: model ?? null,
      items,
      usage: usage ?? null,
    };
  },
};

describe.each(cells)("from $from to $to", ({ from, to }) => {
  test("a stream, put together by the official SDK, is the whole answer", async () => {
    await fc.assert(
      fc.asyncProperty(answers, fc.integer({ min: 1, max: 9 }), async (answer, size) => {
        const carry = carryFor(to);
        const whole = convertWhole(from, scriptedBody[from](answer), carry);
        const { bytes, terminal, error } = convertStream(
          from,
          eventsOf(scriptedStream[from](answer, cutInto(size))),
          carry,
        );
        expect(error).toBeNull();
        expect(faultsOf(bytes + terminal, carry, "end")).toEqual([]);
        // Rule 1.9: without the terminal bytes, which wait for the charge, nobody takes the stream for complete.
        expect(faultsOf(bytes, carry, "either")).not.toEqual([]);
        const judged = await accumulated[to](bytes + terminal);
        expect(comparable[to](judged)).toEqual(comparable[to](whole));
      }),
      { numRuns: runs(40) },
    );
  });

  test("a stream that is cut anywhere ends in exactly one error, one that is not in exactly one end", () => {
    fc.assert(
      fc.property(
        answers,
        fc.integer({ min: 1, max: 9 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (answer, size, at) => {
          const carry = carryFor(to);
          const script = eventsOf(scriptedStream[from](answer, cutInto(size)));
          const kept = script.slice(0, Math.floor(at * (script.length + 1)));
          const { bytes, terminal, error } = convertStream(from, kept, carry);
          // Before the first event a failure is an HTTP status, afterwards it has its own grammar.
          const faults =
            bytes === "" ? [] : faultsOf(bytes + terminal, carry, error === null ? "end" : "error");
          expect(faults).toEqual([]);
          // A Chat upstream may leave out [DONE] and the usage; the others end in their last event alone.
          const isWhole = kept.length >= script.length - (from === "chat" ? 2 : 0);
          expect(error === null).toBe(isWhole);
        },
      ),
      { numRuns: runs(60) },
    );
  });

  test("how the upstream cuts its deltas changes nothing but the deltas", () => {
    fc.assert(
      fc.property(answers, fc.integer({ min: 1, max: 9 }), (answer, size) => {
        const carry = carryFor(to);
        const run = (cut: Cut) => convertStream(from, eventsOf(scriptedStream[from](answer, cut)), carry);
        // The terminal event says everything once more where the dialect has such a thing.
        const end = (cut: Cut) => run(cut).terminal.replace(/"sequence_number":\d+/, "");
        expect(end(cutInto(size))).toEqual(end(uncut));
      }),
      { numRuns: runs(30) },
    );
  });

  test("however the network cuts the upstream's bytes, the client gets the same ones", () => {
    fc.assert(
      fc.property(answers, fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1 }), (answer, sizes) => {
        const carry = carryFor(to);
        const script = scriptedStream[from](answer, cutInto(5));
        const bytes = Buffer.from(`\uFEFF: hello\n\n${script.join("")}`);
        const reader = new SseReader();
        const events: SseEvent[] = [];
        for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
          const size = sizes[turn % sizes.length] ?? 1;
          events.push(...reader.push(bytes.subarray(at, at + size)));
          at += size;
        }
        events.push(...reader.end());
        expect(convertStream(from, events, carry)).toEqual(convertStream(from, eventsOf(script), carry));
      }),
      { numRuns: runs(30) },
    );
  });

  test("thinking survives, streamed as whole", () => {
    const answer: ScriptedAnswer = {
      blocks: [
        { kind: "thinking", text: "Let me see. Yes.", opaque: "opaque==" },
        { kind: "text", text: "42" },
      ],
      stop: "end",
      usage: { input: 10, cached: 4, output: 5 },
    };
    const carry = carryFor(to);
    const { bytes, terminal } = convertStream(
      from,
      eventsOf(scriptedStream[from](answer, cutInto(3))),
      carry,
    );
    const thought = framesOf(bytes + terminal)
      .filter(({ data }) => data !== "[DONE]")
      .map(({ data }) => thinkingIn(JSON.parse(data) as JsonObject))
      .join("");
    expect(thought).toBe("Let me see. Yes.");
    expect(JSON.stringify(convertWhole(from, scriptedBody[from](answer), carry))).toContain(
      "Let me see. Yes.",
    );
  });
});

function failureOf(act: () => unknown): unknown {
  try {
    act();
    return null;
  } catch (error) {
    return error;
  }
}

/** The reasoning that one event of any dialect brings. */
function thinkingIn(event: JsonObject): string {
  const [choice] = (event["choices"] ?? []) as JsonObject[];
  const delta = (choice?.["delta"] ?? event["delta"]) as JsonObject | undefined;
  if (event["type"] === "response.reasoning_summary_text.delta") return stringOf(delta) ?? "";
  return stringOf(delta?.["reasoning_content"]) ?? stringOf(delta?.["thinking"]) ?? "";
}

describe.each(dialects)("a %s upstream", (from) => {
  test("streams what it says whole, in the hub too", () => {
    fc.assert(
      fc.property(answers, fc.integer({ min: 1, max: 9 }), (answer, size) => {
        const whole = answerCodecs[from].readResponse(scriptedBody[from](answer), testContext());
        const reader = answerCodecs[from].readStream(testContext());
        const message = new MessageAccumulator();
        for (const event of eventsOf(scriptedStream[from](answer, cutInto(size))))
          for (const said of reader.step(event)) message.push(said);
        const { estimated = false } = whole.usage;
        expect(message.whole()).toEqual({ ...whole, usage: { ...whole.usage, estimated } });
      }),
      { numRuns: runs(50) },
    );
  });
});

test.each(["chat", "responses"] as const)(
  "what a provider's own tool did is left out, streamed as whole, to a %s client",
  async (to) => {
    const call = { type: "server_tool_use", id: "srvtoolu_1", name: "bash_code_execution", input: {} };
    const result = { type: "bash_code_execution_tool_result", tool_use_id: "srvtoolu_1", content: {} };
    const content = [
      { type: "text", text: "Let me see. " },
      call,
      result,
      { type: "text", text: "It is noon." },
    ];
    const answer: JsonObject = {
      ...scriptedBody.messages({ blocks: [], stop: "end", usage: { input: 10, cached: 4, output: 5 } }),
      content,
    };
    const events = [
      { type: "message_start", message: { ...answer, content: [], stop_reason: null } },
      ...content.flatMap((content_block, index) => [
        { type: "content_block_start", index, content_block },
        { type: "content_block_stop", index },
      ]),
      {
        type: "message_delta",
        delta: { stop_reason: "end_turn", stop_sequence: null },
        usage: answer["usage"],
      },
      { type: "message_stop" },
    ].map((data): SseEvent => ({ event: data.type, data: JSON.stringify(data) }));
    const carry = carryFor(to);
    const { bytes, terminal, error } = convertStream("messages", events, carry);
    expect(error).toBeNull();
    expect(faultsOf(bytes + terminal, carry, "end")).toEqual([]);
    const whole = convertWhole("messages", answer, carry);
    for (const told of [bytes + terminal, JSON.stringify(whole)]) {
      expect(told).toContain("Let me see.");
      expect(told).toContain("It is noon.");
      expect(told).not.toContain("bash_code_execution");
    }
    expect(comparable[to](await accumulated[to](bytes + terminal))).toEqual(comparable[to](whole));
  },
);

describe.each(dialects)("a %s upstream that sends garbage", (from) => {
  const anything = fc.oneof(
    fc.json(),
    fc.string(),
    fc.jsonValue().map((value) => JSON.stringify(value)),
  );
  const words = (list: string) => fc.constantFrom(...list.split(" "));
  const types = fc.oneof(
    words(
      "message_start content_block_start content_block_delta content_block_stop message_delta message_stop",
    ),
    words("response.created response.output_item.added response.output_text.delta response.output_item.done"),
    words("response.completed response.failed response.reasoning_text.delta error ping"),
    words("response.function_call_arguments.delta response.function_call_arguments.done"),
    fc.constant(""),
  );
  const fields = fc.oneof(
    words("index delta content_block message choices usage item output_index part response text"),
    words("arguments error type content output status"),
  );
  /** Events that are nearly right: known types and fields with values of any kind. */
  const nearly = fc
    .tuple(types, fc.dictionary(fields, fc.jsonValue({ maxDepth: 4 })))
    .map(([type, values]) => JSON.stringify({ type, ...values }));

  test("gives events or an ApiError, never another failure", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(types, fc.oneof(anything, nearly)), { maxLength: 12 }), (events) => {
        for (const to of dialects) {
          const carry = carryFor(to);
          const { bytes, terminal, error } = convertStream(
            from,
            events.map(([event, data]) => ({ event, data })),
            carry,
          );
          const failedAtOnce = bytes === "" && error !== null;
          const end = error === null ? "end" : "error";
          expect(failedAtOnce ? [] : faultsOf(bytes + terminal, carry, end)).toEqual([]);
        }
      }),
      { numRuns: runs(300) },
    );
  });

  test("gives an answer or an ApiError for whole bodies, never another failure", () => {
    const body = fc.dictionary(
      fc.constantFrom("content", "choices", "output", "usage", "stop_reason", "error", "status", "type"),
      fc.jsonValue({ maxDepth: 5 }),
    ) as fc.Arbitrary<JsonObject>;
    fc.assert(
      fc.property(body, (garbage) => {
        expect(failureOf(() => answerCodecs[from].readResponse(garbage, testContext()))).toSatisfy(
          (error) => error === null || error instanceof ApiError,
        );
      }),
      { numRuns: runs(500) },
    );
  });
});
