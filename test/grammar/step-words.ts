/** What a stream reader makes of each event, in words: for tests of order and delay. */
import { answerCodecs } from "../../dataplane/dialects/answer-codecs.ts";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import type { JsonObject, MessagesEvent } from "../../dataplane/dialects/messages/types.ts";
import { testContext } from "./convert.ts";

/** What each of the upstream's events leads to, in one word per event of the hub. */
export function stepWords(from: Dialect, events: readonly (JsonObject | string)[]): string[][] {
  const reader = answerCodecs[from].readStream(testContext());
  return events.map((data) =>
    reader
      .step({ event: "", data: typeof data === "string" ? data : JSON.stringify(data) })
      .map((event) => hubWord(event)),
  );
}

/** One word for an event of the hub. */
export function hubWord(event: MessagesEvent): string {
  if (event.type === "content_block_start") return `+${event.content_block.type}`;
  if (event.type === "content_block_stop") return "-";
  if (event.type === "message_delta") return String(event.delta.stop_reason);
  if (event.type !== "content_block_delta") return event.type;
  const { delta } = event;
  if (delta.type === "text_delta") return delta.text;
  if (delta.type === "input_json_delta") return delta.partial_json;
  return delta.type;
}
