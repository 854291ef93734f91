/** Laws of the request half, over generated conversations and over bodies that nobody would send. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ApiError } from "../lib/api-error.ts";
import type { CodecContext, Target } from "./codecs.ts";
import { type Dialect, dialects } from "./dialect.ts";
import { DropNotes } from "./losses.ts";
import type { ContentBlockParam, JsonObject, JsonValue, MessageParam } from "./messages/types.ts";
import { requestCodecs } from "./request-codecs.ts";

const context: CodecContext = {
  newId: (prefix) => `${prefix}_new`,
  createdAt: 1_790_000_000,
  sealer: { seal: (plain) => plain, open: (sealed) => sealed },
  model: "model",
};
const target: Target = {
  upstreamModel: "model",
  maxOutputTokens: 100_000,
  samplingParameters: true,
  encryptedReasoning: true,
  ownAccount: false,
  thinking: true,
  imageInput: true,
  pdfInput: true,
};

/** What survives JSON: no -0, no `undefined`. */
const plain = (value: unknown): JsonValue => JSON.parse(JSON.stringify(value)) as JsonValue;

const text = fc.string({ minLength: 1, maxLength: 30 }).filter((value) => value.trim() !== "");
const toolName = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/);
const textBlock = text.map((value): ContentBlockParam => ({ type: "text", text: value }));
const imageBlock = fc.constantFrom<ContentBlockParam>(
  { type: "image", source: { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=" } },
  { type: "image", source: { type: "url", url: "https://example.com/a.jpg" } },
);
const userContent = fc.oneof(
  text,
  fc
    .array(fc.oneof(textBlock, imageBlock), { minLength: 1, maxLength: 4 })
    .filter((blocks) => blocks.length > 1 || blocks[0]?.type !== "text"),
);
const input = fc
  .dictionary(fc.string({ maxLength: 8 }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 })
  .map(plain);

interface ToolRound {
  readonly said: string | undefined;
  readonly calls: readonly { readonly name: string; readonly input: JsonValue; readonly result: string }[];
  readonly then: string | undefined;
}
interface Turn {
  readonly assistant: string;
  readonly system: string | undefined;
  readonly user: string | ContentBlockParam[];
}
type Step = { readonly round: ToolRound } | { readonly turn: Turn };

const maybe = fc.option(text, { nil: undefined });
const call = fc.record({ name: toolName, input, result: text });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc
    .record({ said: maybe, calls: fc.array(call, { minLength: 1, maxLength: 3 }), then: maybe })
    .map((round) => ({ round })),
  fc.record({ assistant: text, system: maybe, user: userContent }).map((turn) => ({ turn })),
);

function conversation(first: string, steps: readonly Step[]): MessageParam[] {
  const messages: MessageParam[] = [{ role: "user", content: first }];
  let calls = 0;
  for (const next of steps) {
    if ("round" in next) {
      const { round } = next;
      const ids = round.calls.map(() => `toolu_${(calls += 1)}`);
      const uses = round.calls.map((call, index): ContentBlockParam => ({
        type: "tool_use",
        id: ids[index] ?? "",
        name: call.name,
        input: call.input as JsonObject,
      }));
      const results = round.calls.map((call, index): ContentBlockParam => ({
        type: "tool_result",
        tool_use_id: ids[index] ?? "",
        content: call.result,
      }));
      messages.push(
        { role: "assistant", content: [...(round.said === undefined ? [] : [textOf(round.said)]), ...uses] },
        { role: "user", content: [...results, ...(round.then === undefined ? [] : [textOf(round.then)])] },
      );
    } else {
      const { turn } = next;
      messages.push({ role: "assistant", content: [textOf(turn.assistant)] });
      if (turn.system !== undefined) messages.push({ role: "system", content: turn.system });
      messages.push({ role: "user", content: turn.user });
    }
  }
  return messages;
}
const textOf = (value: string): ContentBlockParam => ({ type: "text", text: value });

const schema = {
  type: "object",
  properties: { a: { type: "string" } },
  required: ["a"],
  additionalProperties: false,
};
const tools = fc.uniqueArray(toolName, { minLength: 1, maxLength: 3 }).chain((names) =>
  fc.record({
    tools: fc.constant(names.map((name) => ({ name, description: "d", input_schema: schema, strict: true }))),
    tool_choice: fc.constantFrom<JsonValue>(
      { type: "auto" },
      { type: "any" },
      { type: "any", disable_parallel_tool_use: true },
      { type: "tool", name: names[0] ?? "" },
      { type: "none" },
    ),
  }),
);

/** `display` is what only Responses has a counterpart of. */
const thinking = (display: JsonObject) =>
  fc.oneof(
    fc.constant({}),
    fc.constant({ thinking: { type: "disabled" } }),
    fc.constantFrom("low", "medium", "high", "xhigh", "max").map((effort) => ({
      thinking: { type: "adaptive", ...display },
      output_config: { effort },
    })),
  );

const mappedSubset = (display: JsonObject, stops: boolean): fc.Arbitrary<JsonObject> =>
  fc
    .record({
      first: text,
      steps: fc.array(step, { maxLength: 4 }),
      system: fc.option(
        text.filter((value) => !value.startsWith("x-anthropic")),
        { nil: undefined },
      ),
      tools: fc.option(tools, { nil: {} }),
      thinking: thinking(display),
      rest: fc.record(
        {
          temperature: fc.double({ min: 0, max: 1, noNaN: true }),
          top_p: fc.double({ min: 0, max: 1, noNaN: true }),
          stream: fc.constant(true),
          metadata: fc.record({ user_id: fc.string({ minLength: 1, maxLength: 64 }) }),
          ...(stops && { stop_sequences: fc.array(text, { minLength: 1, maxLength: 4 }) }),
        },
        { requiredKeys: [] },
      ),
      max_tokens: fc.integer({ min: 16, max: 100_000 }),
    })
    .map(
      ({ first, steps, system, tools: declared, thinking: thought, rest, max_tokens }) =>
        plain({
          model: "model",
          max_tokens,
          messages: conversation(first, steps),
          ...(system !== undefined && { system }),
          ...declared,
          ...thought,
          ...rest,
        }) as JsonObject,
    );

function thereAndBack(body: JsonObject, through: Dialect): JsonValue {
  const there = requestCodecs.messages.readRequest(body, context);
  const written = requestCodecs[through].writeRequest(
    there.request,
    there.carry,
    target,
    new DropNotes(true),
  );
  // As it would arrive over the wire.
  return plain(requestCodecs[through].readRequest(plain(written) as JsonObject, context).request);
}

describe("what both dialects know comes back as it was, and nothing is said to be dropped", () => {
  test("Messages → Chat → Messages", () => {
    fc.assert(
      fc.property(mappedSubset({}, true), (body) => {
        expect(thereAndBack(body, "chat")).toEqual(body);
      }),
    );
  });

  test("Messages → Responses → Messages", () => {
    fc.assert(
      fc.property(mappedSubset({ display: "summarized" }, false), (body) => {
        expect(thereAndBack(body, "responses")).toEqual(body);
      }),
    );
  });
});

const golden = join(import.meta.dirname, "../../test/golden/dialects/requests");
const examples = Object.fromEntries(
  dialects.map((dialect) => [
    dialect,
    readdirSync(join(golden, dialect))
      .filter((file) => !file.endsWith(".expected.json"))
      .map(
        (file) =>
          (JSON.parse(readFileSync(join(golden, dialect, file), "utf8")) as { request: JsonObject }).request,
      ),
  ]),
) as Record<Dialect, JsonObject[]>;

/** Replaces the node that `steps` lead to by `value`. */
function mutate(node: JsonValue, steps: readonly number[], value: JsonValue): JsonValue {
  const [first, ...rest] = steps;
  if (first === undefined || typeof node !== "object" || node === null) return value;
  if (Array.isArray(node)) {
    if (node.length === 0) return value;
    const at = first % node.length;
    return node.map((element, index) => (index === at ? mutate(element, rest, value) : element));
  }
  const keys = Object.keys(node);
  if (keys.length === 0) return value;
  const key = keys[first % keys.length] ?? "";
  return { ...node, [key]: mutate(node[key] ?? null, rest, value) };
}

const oddValue = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }).map(plain),
  fc.constantFrom<JsonValue>(
    "",
    null,
    {},
    [],
    [null],
    [{}],
    { type: "text" },
    { __proto__: null, type: "x" },
    "\u0000",
    "\ud800",
  ),
);

describe.each(dialects)("a %s body with something odd in it", (client) => {
  test("is converted, or refused with the path of a field; it never crashes", () => {
    const body = fc
      .tuple(
        fc.constantFrom(...examples[client]),
        fc.array(fc.nat(20), { minLength: 1, maxLength: 7 }),
        oddValue,
      )
      .map(([example, steps, value]) => mutate(example, steps, value) as JsonObject);
    fc.assert(
      fc.property(body, fc.constantFrom(...dialects), (request, upstream) => {
        try {
          const read = requestCodecs[client].readRequest(request, context);
          requestCodecs[upstream].writeRequest(read.request, read.carry, target, new DropNotes(false));
        } catch (error) {
          expect(error).toBeInstanceOf(ApiError);
          expect((error as ApiError).param).toBeTypeOf("string");
          expect((error as ApiError).kind.status).toBe(400);
        }
      }),
      { numRuns: 1500 },
    );
  });
});

describe.each(dialects)("toward a %s upstream", (upstream) => {
  /** More than a function call may have arguments. */
  const many = Array.from({ length: 150_000 }, (_, index) => `call_${index}`);
  const convert = (request: JsonObject) => {
    const read = requestCodecs.responses.readRequest(request, context);
    return requestCodecs[upstream].writeRequest(read.request, read.carry, target, new DropNotes(false));
  };

  test("calls whose results come only at the very end are told apart in linear time", () => {
    const items = many.slice(0, 30_000).flatMap((call_id) => [
      { type: "function_call", call_id, name: "f", arguments: "{}" },
      { role: "user", content: "And?" },
    ]);
    const results = many
      .slice(0, 30_000)
      .map((call_id) => ({ type: "function_call_output", call_id, output: "" }));
    const started = performance.now();
    convert({ model: "m", input: [...items, ...results] });
    // A fraction of a second; quadratic it would be half a minute.
    expect(performance.now() - started).toBeLessThan(8_000);
  });

  test("a message of more parts than a call may have arguments is no stack overflow", () => {
    const parts = (type: string) => many.map(() => ({ type, text: "x" }));
    const input = [
      { role: "user", content: parts("input_text") },
      { role: "assistant", content: parts("output_text") },
      { role: "user", content: "And?" },
    ];
    expect(convert({ model: "m", input })).toHaveProperty("model");
  });
});
