/** Conversations in Messages form of what every dialect can hold, generated. */
import fc from "fast-check";
import type {
  ContentBlockParam,
  JsonObject,
  JsonValue,
  MessageParam,
} from "../../dataplane/dialects/messages/types.ts";

/** What survives JSON: no -0, no `undefined`. */
export const plain = (value: unknown): JsonValue => JSON.parse(JSON.stringify(value)) as JsonValue;

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

const thinking = (display: JsonObject) =>
  fc.oneof(
    fc.constant({}),
    fc.constant({ thinking: { type: "disabled" } }),
    fc.constantFrom("low", "medium", "high", "xhigh", "max").map((effort) => ({
      thinking: { type: "adaptive", ...display },
      output_config: { effort },
    })),
  );

/** @param display of thinking: what only Responses has a counterpart of. @param stops with stop sequences. */
export const mappedSubset = (display: JsonObject, stops: boolean): fc.Arbitrary<JsonObject> =>
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
