import { expect, test } from "vitest";
import type { ContentBlock, MessagesEvent } from "../dialects/messages/types.ts";
import { IterationReader } from "./iteration-reader.ts";

const citer = { native: () => null, ofText: () => [] };

test("what a compaction's delta brings goes back to the model in the next iteration", () => {
  const reader = new IterationReader({
    serverTools: new Set(),
    clientTools: false,
    final: false,
    nextIndex: 2,
    started: true,
    newId: (prefix) => `${prefix}_1`,
    citer,
  });
  const begun = { type: "compaction", content: null, encrypted_content: null } as unknown as ContentBlock;
  const delta = { type: "compaction_delta", content: "so far", encrypted_content: "opaque==" } as const;
  const events: MessagesEvent[] = [
    { type: "content_block_start", index: 0, content_block: begun },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
  ];
  expect(events.flatMap((event) => reader.push(event))).toEqual([
    { type: "content_block_start", index: 2, content_block: begun },
    { type: "content_block_delta", index: 2, delta },
    { type: "content_block_stop", index: 2 },
  ]);
  expect(reader.blocks).toEqual([{ type: "compaction", content: "so far", encrypted_content: "opaque==" }]);
});
