/** Laws of cutting answers at stop sequences: over chunkings, Unicode and overlaps, against a matcher that tries every place. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { MessagesEvent, MessagesResponse } from "./messages/types.ts";
import {
  chatStops,
  cutMessage,
  type CutText,
  StopCutter,
  StopMatcher,
  StopSequences,
  stopsCutHere,
} from "./stop-sequences.ts";
import { runs } from "../../test/fakes/runs.ts";

/** What the rule says, place by place: the first end of a sequence, and of those that end there the longest. */
function plainCut(text: string, stops: readonly string[]): CutText {
  for (let end = 1; end <= text.length; end += 1) {
    const here = stops.filter((stop) => text.slice(0, end).endsWith(stop));
    const stop = here.sort((one, other) => other.length - one.length)[0];
    if (stop !== undefined) return { text: text.slice(0, end - stop.length), stop };
  }
  return { text, stop: null };
}

/** The same piece by piece; also what had been said after each piece. */
function piecewise(pieces: readonly string[], stops: readonly string[]): CutText & { said: string[] } {
  const matcher = new StopMatcher(new StopSequences(stops));
  const said: string[] = [];
  let whole = "";
  for (const piece of pieces) {
    const { text, stop } = matcher.push(piece);
    whole += text;
    said.push(whole);
    if (stop !== null) return { text: whole, stop, said };
  }
  return { text: whole + matcher.end(), stop: null, said };
}

/** Cut anywhere, between the halves of a pair and into nothing at all too. */
const chunked = (text: fc.Arbitrary<string>) =>
  text.chain((whole) =>
    fc.array(fc.integer({ min: 0, max: whole.length }), { maxLength: 12 }).map((cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), whole.length];
      return at.slice(1).map((end, index) => whole.slice(at[index], end));
    }),
  );

/** Few letters make overlaps, repetitions and prefixes of each other; the others are pairs and joined characters. */
const alphabets = {
  overlaps: ["a", "b"],
  unicode: ["😀", "😁", "👩‍🚀", "é", "漢", "a"],
  // The same first or second half of a pair.
  pairs: ["\u{1F600}", "\u{1F601}", "\u{10600}", "\u{1F200}", "x"],
  lines: ["\n", "\n\n", "END", "E", "N", "D", " "],
};
const words = (letters: readonly string[], minLength: number, maxLength: number) =>
  fc.array(fc.constantFrom(...letters), { minLength, maxLength }).map((some) => some.join(""));

describe.each(Object.entries(alphabets))("texts of %s", (_, letters) => {
  const stops = fc.array(words(letters, 1, 5), { minLength: 1, maxLength: 6 });
  const text = words(letters, 0, 40);

  test("however it is chunked, a text ends before the sequence that is completed first", () => {
    fc.assert(
      fc.property(chunked(text), stops, (pieces, some) => {
        const { said: _said, ...cut } = piecewise(pieces, some);
        expect(cut).toEqual(plainCut(pieces.join(""), some));
      }),
      { numRuns: runs(1_000) },
    );
  });

  test("nothing of a sequence ever leaves, and no more is kept back than may be the beginning of one", () => {
    fc.assert(
      fc.property(chunked(text), stops, (pieces, some) => {
        const { text: whole, said } = piecewise(pieces, some);
        let came = "";
        for (const [index, soFar] of said.entries()) {
          came += pieces[index] as string;
          expect(whole.startsWith(soFar)).toBe(true);
          if (soFar.length === whole.length) continue;
          const held = came.slice(soFar.length);
          expect(some.some((stop) => stop.length > held.length && stop.startsWith(held)) || held === "").toBe(
            true,
          );
        }
      }),
      { numRuns: runs(1_000) },
    );
  });

  test("a stream is cut where the whole answer is", () => {
    fc.assert(
      fc.property(fc.array(chunked(text), { minLength: 1, maxLength: 3 }), stops, (texts, some) => {
        const events: MessagesEvent[] = [
          start,
          ...thinking(0, "a😀END\n\n"),
          ...texts.flatMap(textEvents),
          ...end,
        ];
        const cutter = new StopCutter(some);
        const said = events.flatMap((event) => cutter.push([event], () => usage));
        const whole = cutMessage(messageOf(events), some);
        expect(shown(messageOf(said))).toEqual(shown(whole));
        expect(cutter.isCut).toBe(whole.stop_reason === "stop_sequence");
        expect(said.at(-1)).toEqual({ type: "message_stop" });
      }),
    );
  });
});

test("a text is read once, in however many pieces, whatever the sequences", () => {
  class Counting extends StopSequences {
    steps = 0;

    override step(node: number, unit: number): number {
      this.steps += 1;
      return super.step(node, unit);
    }
  }
  const sequences = new Counting(Array.from({ length: 100 }, (_, index) => `${"a".repeat(140)}${index}`));
  const matcher = new StopMatcher(sequences);
  for (let at = 0; at < 2_000; at += 1) expect(matcher.push("a").stop).toBeNull();
  expect(sequences.steps).toBe(2_000);
  expect(matcher.push("99a")).toEqual({ text: "", stop: `${"a".repeat(140)}9` });
});

test("which are looked for here", () => {
  const five = ["1", "2", "3", "4", "5"];
  expect(stopsCutHere("messages", five)).toEqual([]);
  expect(stopsCutHere("chat", five.slice(1))).toEqual([]);
  expect(stopsCutHere("chat", five)).toEqual(five);
  expect(chatStops(five)).toEqual(["1", "2", "3", "4"]);
  // Nothing at all, and half a character, which no text holds.
  expect(stopsCutHere("responses", ["1", "", "\ud83d"])).toEqual(["1"]);
});

test("a call before the sequence is still to be made, and a refusal stays one", () => {
  const call: MessagesEvent[] = [
    {
      type: "content_block_start",
      index: 0,
      content_block: { type: "tool_use", id: "t", name: "f", input: {} },
    },
    { type: "content_block_stop", index: 0 },
  ];
  const events = [start, ...call, ...textEvents(["no E", "ND yes"], 0), ...end];
  const cut = new StopCutter(["END"]).push(events, () => usage);
  const wanted = {
    content: [{ type: "tool_use" }, { type: "text", text: "no " }],
    stop_reason: "tool_use",
    stop_sequence: null,
  };
  expect(messageOf(cut)).toMatchObject(wanted);
  expect(cutMessage(messageOf(events), ["END"])).toMatchObject(wanted);
  const refused = { ...messageOf([start, ...textEvents(["no END"], -1)]), stop_reason: "refusal" as const };
  expect(cutMessage(refused, ["END"])).toEqual({ ...refused, content: [{ type: "text", text: "no " }] });
});

test("a citation that comes before the first word stands in its block, and a block without a word is none", () => {
  const [open, ...rest] = textEvents(["no E", "ND yes"], -1);
  const citation = {
    type: "char_location",
    cited_text: "no",
    document_index: 0,
    document_title: null,
    start_char_index: 0,
    end_char_index: 2,
    file_id: null,
  } as const;
  const cited: MessagesEvent = {
    type: "content_block_delta",
    index: 0,
    delta: { type: "citations_delta", citation },
  };
  const said = new StopCutter(["END"]).push([start, open as MessagesEvent, cited, ...rest], () => usage);
  expect(said.slice(0, 4)).toMatchObject([
    { type: "message_start" },
    { type: "content_block_start", index: 0 },
    cited,
    { delta: { type: "text_delta", text: "no " } },
  ]);
  expect(messageOf(said)).toMatchObject({ content: [{ text: "no " }], stop_sequence: "END" });
  const bare = new StopCutter(["END"]).push([start, ...textEvents(["E", "ND"], -1)], () => usage);
  expect(messageOf(bare)).toMatchObject({ content: [], stop_sequence: "END" });
});

const usage = { input_tokens: 1, output_tokens: 2 };
const message: MessagesResponse = {
  id: "msg_1",
  type: "message",
  role: "assistant",
  model: "m",
  content: [],
  stop_reason: null,
  stop_sequence: null,
  usage,
};
const start: MessagesEvent = { type: "message_start", message };
const end: MessagesEvent[] = [
  { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null }, usage },
  { type: "message_stop" },
];
const thinking = (index: number, thought: string): MessagesEvent[] => [
  { type: "content_block_start", index, content_block: { type: "thinking", thinking: "", signature: "" } },
  { type: "content_block_delta", index, delta: { type: "thinking_delta", thinking: thought } },
  { type: "content_block_stop", index },
];
const textEvents = (pieces: readonly string[], before: number): MessagesEvent[] => {
  const index = before + 1;
  return [
    { type: "content_block_start", index, content_block: { type: "text", text: "" } },
    ...pieces.map((text): MessagesEvent => ({
      type: "content_block_delta",
      index,
      delta: { type: "text_delta", text },
    })),
    { type: "content_block_stop", index },
  ];
};

/** The message that a stream says; @throws when its blocks are not opened and closed in turn. */
function messageOf(events: readonly MessagesEvent[]): MessagesResponse {
  const whole = structuredClone(message);
  let open = -1;
  for (const event of events) {
    if (event.type === "content_block_start") {
      expect([open, event.index]).toEqual([-1, whole.content.length]);
      open = event.index;
      whole.content.push(structuredClone(event.content_block));
    } else if (event.type === "content_block_delta") {
      expect(event.index).toBe(open);
      const block = whole.content[open];
      if (event.delta.type === "text_delta" && block?.type === "text") block.text += event.delta.text;
      if (event.delta.type === "thinking_delta" && block?.type === "thinking")
        block.thinking += event.delta.thinking;
    } else if (event.type === "content_block_stop") {
      expect(event.index).toBe(open);
      open = -1;
    } else if (event.type === "message_delta") Object.assign(whole, event.delta);
  }
  expect(open).toBe(-1);
  return whole;
}

const shown = ({ content, stop_reason, stop_sequence }: MessagesResponse) => ({
  content,
  stop_reason,
  stop_sequence,
});
