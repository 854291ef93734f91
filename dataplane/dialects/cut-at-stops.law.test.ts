/** Laws of cutting answers at stop sequences: streamed as whole, and over the parts of a text as over one. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { runs } from "../../test/fakes/runs.ts";
import { chunked, plainCut, stopAlphabets, words } from "../../test/fakes/stop-texts.ts";
import { codePoints } from "../lib/code-points.ts";
import { cutMessage, StopCutter } from "./cut-at-stops.ts";
import type { MessagesEvent, MessagesResponse } from "./messages/types.ts";

describe.each(Object.entries(stopAlphabets))("texts of %s", (_, letters) => {
  const stops = fc.array(words(letters, 1, 5), { minLength: 1, maxLength: 6 });
  const text = words(letters, 0, 40);

  const thought = fc.record({ thought: text });
  /** Texts in pieces, beside each other and apart. */
  const blocks = fc.array(fc.oneof({ weight: 3, arbitrary: chunked(text) }, thought), { maxLength: 5 });

  test("a stream is cut where the whole answer is, with the citations of what is left", () => {
    fc.assert(
      fc.property(blocks, stops, (some, sequences) => {
        const events: MessagesEvent[] = [
          start,
          ...some.flatMap((block, index) =>
            Array.isArray(block) ? citedText(block, index) : thinking(index, block.thought),
          ),
          ...end,
        ];
        const cutter = new StopCutter(sequences);
        const said = events.flatMap((event) => cutter.push([event], () => usage));
        const whole = cutMessage(messageOf(events), sequences);
        expect(shown(messageOf(said))).toEqual(shown(whole));
        expect(cutter.isCut).toBe(whole.stop_reason === "stop_sequence");
        expect(said.at(-1)).toEqual({ type: "message_stop" });
      }),
      { numRuns: runs(500) },
    );
  });

  test("texts with nothing between them are cut as one", () => {
    fc.assert(
      fc.property(fc.array(chunked(text), { minLength: 1, maxLength: 4 }), stops, (texts, sequences) => {
        const events = [start, ...texts.flatMap((pieces, index) => textEvents(pieces, index)), ...end];
        const cut = plainCut(texts.flat().join(""), sequences);
        for (const message of [
          messageOf(new StopCutter(sequences).push(events, () => usage)),
          cutMessage(messageOf(events), sequences),
        ]) {
          const left = message.content.map((block) => (block.type === "text" ? block.text : "?")).join("");
          expect({ text: left, stop: message.stop_sequence }).toEqual(cut);
        }
      }),
      { numRuns: runs(500) },
    );
  });
});

test("what may be the beginning of a sequence is said as soon as something else than a text comes", () => {
  const cutter = new StopCutter(["END"]);
  const events = [start, ...textEvents(["a"], 0), ...textEvents(["E"], 1), ...textEvents(["N"], 2)];
  expect(messageOf(cutter.push(events, () => usage)).content).toEqual([{ type: "text", text: "a" }]);
  const said = cutter.push(thinking(3, "D"), () => usage);
  expect(said.flatMap((event) => (event.type === "content_block_delta" ? [event.delta] : []))).toEqual([
    { type: "text_delta", text: "E" },
    { type: "text_delta", text: "N" },
    { type: "thinking_delta", thinking: "D" },
  ]);
  expect(cutter.push(textEvents(["D"], 4), () => usage)).toHaveLength(3);
});

test("a ping parts no text", () => {
  const events: MessagesEvent[] = [
    start,
    ...textEvents(["E"], 0),
    { type: "ping" },
    ...textEvents(["ND"], 1),
  ];
  const said = new StopCutter(["END"]).push(events, () => usage);
  expect(said.map(({ type }) => type)).toEqual(["message_start", "ping", "message_delta", "message_stop"]);
});

test("tokens and citations stand with their own text", () => {
  const token = (text: string) => ({
    token: text,
    logprob: -1,
    bytes: [...Buffer.from(text)],
    top_logprobs: [],
  });
  const told = (pieces: readonly string[], index: number) =>
    textEvents(pieces, index).map((event) =>
      event.type === "content_block_delta" && event.delta.type === "text_delta"
        ? { ...event, delta: { ...event.delta, logprobs: [token(event.delta.text)] } }
        : event,
    );
  const events = [start, ...told(["a", "E"], 0), ...told(["N", "b"], 1), ...told(["E", "ND"], 2), ...end];
  const whole = cutMessage(messageOf(events), ["END"]);
  expect(whole.content).toEqual([
    { type: "text", text: "aE", logprobs: [token("a"), token("E")] },
    { type: "text", text: "Nb", logprobs: [token("N"), token("b")] },
  ]);
  expect(messageOf(new StopCutter(["END"]).push(events, () => usage)).content).toEqual(whole.content);
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
  const events = [start, ...call, ...textEvents(["no E", "ND yes"], 1), ...end];
  const cut = new StopCutter(["END"]).push(events, () => usage);
  const wanted = {
    content: [{ type: "tool_use" }, { type: "text", text: "no " }],
    stop_reason: "tool_use",
    stop_sequence: null,
  };
  expect(messageOf(cut)).toMatchObject(wanted);
  expect(cutMessage(messageOf(events), ["END"])).toMatchObject(wanted);
  const refused = { ...messageOf([start, ...textEvents(["no END"], 0)]), stop_reason: "refusal" as const };
  expect(cutMessage(refused, ["END"])).toEqual({ ...refused, content: [{ type: "text", text: "no " }] });
});

test("a citation that comes before the first word stands in its block, and a block without a word is none", () => {
  const [open, ...rest] = textEvents(["no E", "ND yes"], 0);
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
  const bare = new StopCutter(["END"]).push([start, ...textEvents(["E", "ND"], 0)], () => usage);
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
const textEvents = (pieces: readonly string[], index: number): MessagesEvent[] => [
  { type: "content_block_start", index, content_block: { type: "text", text: "" } },
  ...pieces.map((text): MessagesEvent => ({
    type: "content_block_delta",
    index,
    delta: { type: "text_delta", text },
  })),
  { type: "content_block_stop", index },
];
/** Each two characters have a citation, all told before the first. */
const citedText = (pieces: readonly string[], index: number): MessagesEvent[] => {
  const points = codePoints(pieces.join(""));
  const annotations = Array.from({ length: Math.floor(points / 2) }, (_, at) => ({
    start_index: 2 * at,
    end_index: 2 * at + 2,
    url: `https://${index}.example/${at}`,
    title: "",
  }));
  return textEvents(pieces, index).toSpliced(1, 0, {
    type: "content_block_delta",
    index,
    delta: { type: "annotations_delta", annotations },
  });
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
      if (event.delta.type === "text_delta" && block?.type === "text") {
        block.text += event.delta.text;
        if (event.delta.logprobs) block.logprobs = [...(block.logprobs ?? []), ...event.delta.logprobs];
      }
      if (event.delta.type === "annotations_delta" && block?.type === "text")
        block.annotations = [...(block.annotations ?? []), ...event.delta.annotations];
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
  // An empty list says as much as none.
  content: content.map((block) =>
    block.type === "text" && block.annotations?.length === 0 ? { type: "text", text: block.text } : block,
  ),
  stop_reason,
  stop_sequence,
});
