/** Server-sent events as the standard reads them: others may write `\r\n`, no space after the colon, or comments. */
import { createParser } from "eventsource-parser";
import type { Frame } from "../grammar/sse.ts";

export interface Frames {
  readonly frames: readonly Frame[];
  /** The same in our own strict framing, as grammars and SDKs' accumulators read it. */
  readonly plain: string;
  /** What came after the last blank line. */
  readonly rest: string;
}

export function framesIn(stream: string): Frames {
  const frames: Frame[] = [];
  const parser = createParser({
    onEvent: ({ event = "", data }) => frames.push({ event, data }),
  });
  parser.feed(stream);
  const rest = /(?:^|\r\n\r\n|\n\n|\r\r)((?:(?!\r\n\r\n|\n\n|\r\r)[\s\S])*)$/.exec(stream)?.[1] ?? "";
  const plain = frames
    .map(({ event, data }) => {
      const lines = data.split("\n").map((line) => `data: ${line}\n`);
      return `${event === "" ? "" : `event: ${event}\n`}${lines.join("")}\n`;
    })
    .join("");
  return { frames, plain, rest };
}
