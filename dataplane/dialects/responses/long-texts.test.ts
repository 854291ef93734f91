/** Long texts of a Responses stream: four events tell them, and they become JSON once (rule 7.3). */
import { expect, test, vi } from "vitest";
import { framesOf } from "../../../test/grammar/sse.ts";
import { testCarry, testContext } from "../../../test/grammar/convert.ts";
import { messageEnd, messageStart } from "../messages/events.ts";
import { markReasoning } from "../reasoning.ts";
import type { BlockDelta, ContentBlock, JsonObject, MessagesEvent } from "../messages/types.ts";
import { ResponsesStreamWriter } from "./write-stream.ts";

const usage = { input_tokens: 1, output_tokens: 2 };
const end = messageEnd({ stop_reason: "end_turn", stop_sequence: null }, usage);
const piece = 'a "word", é, 😀;\n0;'.repeat(1_000);
const PIECES = 20;

/** Writes an answer of two blocks of this kind. @returns its events, what was kept, and how many long texts were made JSON. */
function written(block: ContentBlock, delta: BlockDelta) {
  const kept: string[] = [];
  const keepItem = (_: string, json: Buffer | string) => {
    kept.push(String(json));
  };
  const context = { ...testContext(), keepItem };
  const writer = new ResponsesStreamWriter(testCarry("responses"), context);
  const stringify = vi.spyOn(JSON, "stringify");
  const write = (event: MessagesEvent) =>
    event.type === "message_stop" ? writer.terminal() : writer.write(event);
  let bytes = write(messageStart("msg_1", "m", usage));
  for (const index of [0, 1]) {
    bytes += write({ type: "content_block_start", index, content_block: block });
    for (let times = 0; times < PIECES + index; times += 1)
      bytes += write({ type: "content_block_delta", index, delta });
    bytes += write({ type: "content_block_stop", index });
  }
  for (const event of end) bytes += write(event);
  const long = stringify.mock.results.filter(({ value }) => String(value).length > PIECES * piece.length);
  stringify.mockRestore();
  const { keptCharacters } = writer;
  return { keptCharacters, datas: framesOf(bytes).map(({ data }) => data), kept, long: long.length };
}

test.each([
  ["text", { type: "text", text: "" }, { type: "text_delta", text: piece }, "text"],
  [
    "arguments",
    { type: "tool_use", id: "call_1", name: "f", input: {} },
    { type: "input_json_delta", partial_json: piece },
    "arguments",
  ],
  [
    "reasoning",
    { type: "thinking", thinking: "", signature: markReasoning({ from: "chat" }) },
    { type: "thinking_delta", thinking: piece },
    "text",
  ],
] as const)("%s", (_name, block, delta, member) => {
  const { datas, kept, long, keptCharacters } = written(block, delta);
  expect(long).toBe(2);
  const events = datas.map((data) => JSON.parse(data) as JsonObject);
  // The same bytes as if each were written anew.
  expect([...datas, ...kept]).toEqual([...datas, ...kept].map((json) => JSON.stringify(JSON.parse(json))));
  const texts = [piece.repeat(PIECES), piece.repeat(PIECES + 1)];
  const told = events
    .filter(({ type }) => String(type).endsWith(`${member}.done`))
    .map((event) => event[member]);
  expect(told).toEqual(texts);
  const found: unknown[] = [];
  JSON.stringify(events.at(-1), (key: string, value: unknown) => {
    if (key === member && typeof value === "string") found.push(value);
    return value;
  });
  expect(found).toEqual(texts);
  // What is kept is their JSON.
  const length = texts.reduce((sum, text) => sum + JSON.stringify(text).length, 0);
  expect(keptCharacters).toBe(length);
  const items = kept.join("");
  for (const text of texts) expect(items).toContain(`"${member}":${JSON.stringify(text)}`);
});
