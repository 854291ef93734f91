/** A converted stream as its client's bytes. */
import type { StreamWriter } from "./codecs.ts";
import type { MessagesEvent } from "./messages/types.ts";

/** Bytes for these events; `terminal` may only leave once the request is charged (`StreamWriter`). */
export function writeEvents(
  writer: StreamWriter,
  events: readonly MessagesEvent[],
): { readonly bytes: string; readonly terminal: string } {
  let bytes = "";
  let terminal = "";
  for (const event of events)
    if (event.type === "message_stop") terminal += writer.terminal();
    else bytes += writer.write(event);
  return { bytes, terminal };
}
