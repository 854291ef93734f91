/** Events of the hub's streams that several places make (dialects.md §C1). */
import { writeArguments } from "../arguments.ts";
import type { BlockDelta, ContentBlock, MessageEnd, MessagesEvent, MessagesUsage } from "./types.ts";

/** Makes the first event of a stream. @param usage as far as it is known. */
export const messageStart = (id: string, model: string, usage: MessagesUsage): MessagesEvent => ({
  type: "message_start",
  message: {
    id,
    type: "message",
    role: "assistant",
    model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage,
  },
});

/** Makes the last two events of a stream. @param usage of the whole answer. */
export const messageEnd = (end: MessageEnd, usage: MessagesUsage): MessagesEvent[] => [
  { type: "message_delta", delta: end, usage },
  { type: "message_stop" },
];

/** Makes the events of a whole block: its start, a delta for a text or a call's input, its stop. */
export function wholeBlock(block: ContentBlock, index: number): MessagesEvent[] {
  const stop: MessagesEvent = { type: "content_block_stop", index };
  const begun = (content_block: ContentBlock, deltas: readonly BlockDelta[]): MessagesEvent[] => [
    { type: "content_block_start", index, content_block },
    ...deltas.map((delta): MessagesEvent => ({ type: "content_block_delta", index, delta })),
    stop,
  ];
  switch (block.type) {
    case "text":
      return begun({ type: "text", text: "" }, [
        { type: "text_delta", text: block.text },
        ...(block.citations ?? []).map((citation): BlockDelta => ({ type: "citations_delta", citation })),
      ]);
    case "tool_use":
    case "server_tool_use":
      return begun({ ...block, input: {} }, [
        { type: "input_json_delta", partial_json: writeArguments(block.input) },
      ]);
    default:
      return begun(block, []);
  }
}
