import { expect, test } from "vitest";
import { computedMs } from "../../../test/fakes/computed.ts";
import { MessageAccumulator } from "./accumulate.ts";
import { messageEnd, messageStart, wholeBlock } from "./events.ts";
import type { Citation, ContentBlock } from "./types.ts";

test("a text is put together in little time, however many citations it has", () => {
  const citation: Citation = {
    type: "char_location",
    cited_text: "a",
    document_index: 0,
    document_title: null,
    start_char_index: 0,
    end_char_index: 1,
    file_id: null,
  };
  const block: ContentBlock = {
    type: "text",
    text: "a",
    citations: Array.from({ length: 150_000 }, () => citation),
  };
  const usage = { input_tokens: 1, output_tokens: 1 };
  const before = computedMs();
  const accumulator = new MessageAccumulator();
  accumulator.push(messageStart("msg_1", "m", usage));
  for (const event of wholeBlock(block, 0)) accumulator.push(event);
  for (const event of messageEnd({ stop_reason: "end_turn", stop_sequence: null }, usage))
    accumulator.push(event);
  expect(accumulator.whole()?.content).toEqual([block]);
  expect(computedMs() - before).toBeLessThan(2_000);
});

test("deltas leave a block's start as it is", () => {
  const accumulator = new MessageAccumulator();
  accumulator.push(messageStart("msg_1", "m", { input_tokens: 1, output_tokens: 1 }));
  const start = { type: "text", text: "", citations: [] } satisfies ContentBlock;
  accumulator.push({ type: "content_block_start", index: 0, content_block: start });
  const citation = { type: "web_search_result_location" } as unknown as Citation;
  accumulator.push({ type: "content_block_delta", index: 0, delta: { type: "citations_delta", citation } });
  expect(start.citations).toEqual([]);
});
