import { describe, expect, test } from "vitest";
import { testContext } from "../../../test/grammar/convert.ts";
import { answerCodecs } from "../../dialects/answer-codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { deltaInPieces } from "./long-delta.ts";

const MARK = "f00dcafe";
/** Longer than what is read in one step, in characters that are not to be cut apart. */
const texts = {
  quotes: '"'.repeat(1_100_000),
  plain: "a".repeat(1_100_000),
  Chinese: "x" + "中".repeat(400_000),
  emoji: "x" + "😀".repeat(300_000),
};
/** JSON with each character beyond ASCII escaped. */
const ascii = (json: string): string =>
  json.replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

function piecesOf(dialect: Dialect, event: object, inside: string): Record<string, unknown>[] | null {
  const pieces = deltaInPieces(dialect, Buffer.from(JSON.stringify(event)), MARK, Buffer.from(inside));
  return (
    pieces?.ends.map((end, index) =>
      JSON.parse(pieces.bytes.toString("utf8", pieces.ends[index - 1] ?? 0, end)),
    ) ?? null
  );
}

const delta = { type: "content_block_delta", index: 3, delta: { type: "text_delta", text: MARK } };

describe.each(Object.entries(texts))("%s", (_, text) => {
  const plain = JSON.stringify(text).slice(1, -1);

  test.each([plain, ascii(plain).replaceAll("\\ud83d", "\\uD83D")])("the pieces are the text", (inside) => {
    const pieces = piecesOf("messages", delta, inside) as (typeof delta)[];
    expect(pieces.length).toBeGreaterThan(10);
    const said = pieces.map((piece) => piece.delta.text);
    expect(said.every((piece) => piece.isWellFormed() && piece.length <= 65_536)).toBe(true);
    expect(said.join("") === text).toBe(true);
    expect(pieces.at(-1)).toMatchObject({ index: 3, delta: { type: "text_delta" } });
  });
});

test.each([
  ["half of a pair before other escapes", "\\ud83d\\nabc\\n\\n"],
  ["JSON within JSON", String.raw`\\ud83d\n\n中`],
  ["an escape behind half a pair", String.raw`\ud83d\u4e2d`],
])("%s is not cut apart, wherever a piece ends", (_, unit) => {
  for (let before = 0; before < 16; before += 1) {
    const inside = "x".repeat(before) + unit.repeat(100_000);
    const pieces = piecesOf("messages", delta, inside) as (typeof delta)[];
    expect(pieces.map((piece) => piece.delta.text).join("") === JSON.parse(`"${inside}"`)).toBe(true);
  }
});

test.each<[Dialect, object]>([
  ["messages", { ...delta, more: "b".repeat(60_000), delta: { ...delta.delta, more: "b".repeat(60_000) } }],
  ["responses", { type: "response.output_text.delta", item_id: "i", delta: MARK, more: "b".repeat(60_000) }],
])("%s: only the first piece holds what stands besides the text", (dialect, event) => {
  const [first, ...others] = piecesOf(dialect, event, texts.plain) ?? [];
  expect(first).toMatchObject({ more: "b".repeat(60_000) });
  const texted = others.map((piece) => JSON.stringify(piece).length);
  expect(Math.max(...texted)).toBeLessThan(66_000);
});

const chunk = (said: object, more: object = {}, choice: object = {}) => ({
  id: "c",
  model: "m",
  choices: [{ index: 0, delta: said, ...choice }],
  ...more,
});

test("Chat: what begins stands in the first piece, what ends in the last", () => {
  const call = { index: 1, id: "call_1", type: "function", function: { name: "f", arguments: MARK } };
  const event = chunk(
    { role: "assistant", content: null, tool_calls: [call] },
    { usage: { prompt_tokens: 1 } },
    { finish_reason: "tool_calls" },
  );
  const pieces = piecesOf("chat", event, texts.plain) ?? [];
  expect(pieces[0]).toMatchObject({
    id: "c",
    choices: [{ delta: { role: "assistant", tool_calls: [{ index: 1, id: "call_1" }] } }],
  });
  expect(pieces[0]).not.toHaveProperty("usage");
  expect(pieces[0]).not.toHaveProperty("choices.0.finish_reason");
  for (const piece of pieces.slice(1, -1))
    expect(piece).toEqual({
      choices: [
        {
          index: 0,
          delta: { tool_calls: [{ index: 1, function: { arguments: expect.stringMatching(/^a+$/) } }] },
        },
      ],
    });
  expect(pieces.at(-1)).toEqual({
    ...event,
    choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }],
  });
});

test.each<[Dialect, object]>([
  ["chat", chunk({ content: MARK, reasoning_content: "before" })],
  ["chat", chunk({ content: [{ type: "text", text: MARK }] })],
  ["chat", chunk({ content: MARK }, { error: { message: "no" } })],
  ["chat", chunk({ tool_calls: [{ function: { arguments: MARK } }, { function: { arguments: "{}" } }] })],
  ["messages", { type: "content_block_start", index: 0, content_block: { type: "text", text: MARK } }],
  ["responses", { type: "response.output_text.done", text: MARK }],
  ["responses", { type: "response.output_text.delta", delta: MARK, logprobs: [{ token: "a" }] }],
])("%s: an event that brings something else stays whole: %j", (dialect, event) => {
  expect(piecesOf(dialect, event, texts.plain)).toBeNull();
});

test("a text that can be read in one step stays whole", () => {
  expect(piecesOf("messages", delta, "a".repeat(1_000_000))).toBeNull();
});

describe("Chat: a long call without an index that comes once more, as some servers send it at its end", () => {
  /** What is read of calls that come one after the other, each in one event. */
  function readOf(...calls: [name: string, inside: string][]) {
    const reader = answerCodecs.chat.readStream(testContext());
    const events = calls.flatMap(([name, inside]) => {
      const call = { id: `call_${name}`, type: "function", function: { name, arguments: MARK } };
      return piecesOf("chat", chunk({ tool_calls: [call] }), inside) as object[];
    });
    const end = chunk({}, {}, { finish_reason: "tool_calls" });
    return [...events, end].flatMap((data) => reader.step({ event: "", data: JSON.stringify(data) }));
  }
  const inside = (letter: string) => `{\\"a\\":\\"${letter.repeat(1_100_000)}\\"}`;
  const starts = (events: ReturnType<typeof readOf>) =>
    events.flatMap((event) => (event.type === "content_block_start" ? event.content_block : []));
  const lengthOf = (events: ReturnType<typeof readOf>) =>
    events
      .flatMap((event) => (event.type === "content_block_delta" ? event.delta : []))
      .reduce((sum, one) => sum + (one.type === "input_json_delta" ? one.partial_json.length : 0), 0);

  test("is one call", () => {
    const events = readOf(["f", inside("x")], ["f", inside("x")], ["f", inside("x")]);
    expect(starts(events)).toMatchObject([{ id: "call_f" }]);
    expect(lengthOf(events)).toBe(1_100_008);
  });

  test("is one call though another came between", () => {
    const events = readOf(["f", inside("x")], ["g", inside("x")], ["f", inside("x")], ["g", inside("x")]);
    expect(starts(events)).toMatchObject([{ id: "call_f" }, { id: "call_g" }]);
    expect(lengthOf(events)).toBe(2 * 1_100_008);
  });

  test("is two where its arguments are others from the beginning", () => {
    const events = readOf(["f", inside("x")], ["f", inside("y")]);
    expect(starts(events)).toHaveLength(2);
    expect(lengthOf(events)).toBe(2 * 1_100_008);
  });
});
