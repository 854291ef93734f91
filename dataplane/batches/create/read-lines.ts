import { isJsonSpace } from "../../lib/json-bytes.ts";

/** One physical line of a JSON Lines file, without its end. */
export interface Line {
  /** From 1, blank lines counted. */
  readonly number: number;
  /** null: the line is longer than `maxBytes`; its bytes were dropped. */
  readonly bytes: Buffer | null;
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/**
 * Cuts a stream into lines; at most one line is in memory. LF and CRLF end a line, the last one needs neither. Blank lines are counted
 * and not yielded: a file may have hundreds of millions.
 */
export async function* readLines(source: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Line> {
  let number = 1;
  let parts: Buffer[] = [];
  let length = 0;
  /** Whether the present line has been nothing but white space so far. */
  let isBlank = true;
  const add = (part: Buffer) => {
    length += part.length;
    if (length > maxBytes) parts = [];
    else parts.push(part);
  };
  const begin = (next: number) => {
    number = next;
    parts = [];
    length = 0;
    isBlank = true;
  };
  const take = (): Line => {
    const bytes = length > maxBytes ? null : Buffer.concat(parts, length);
    const line = { number, bytes: bytes?.at(-1) === CARRIAGE_RETURN ? bytes.subarray(0, -1) : bytes };
    begin(number + 1);
    return line;
  };
  for await (const chunk of source) {
    /** Where the present line begins in the chunk. */
    let from = 0;
    while (from < chunk.length) {
      let at = from;
      if (isBlank) {
        const space = passSpace(chunk, from);
        if (space.lines > 0) {
          begin(number + space.lines);
          from = space.lastLine;
        }
        at = space.end;
        if (at === chunk.length) break;
        isBlank = false;
      }
      const end = chunk.indexOf(LINE_FEED, at);
      if (end < 0) break;
      add(chunk.subarray(from, end));
      yield take();
      from = end + 1;
    }
    if (from < chunk.length) add(chunk.subarray(from));
  }
  if (!isBlank) yield take();
}

/** Returns where the white space at `from` ends, how many lines end in it, and where the line after these begins. */
function passSpace(chunk: Buffer, from: number): { end: number; lines: number; lastLine: number } {
  let end = from;
  let lines = 0;
  let lastLine = from;
  for (; end < chunk.length && isJsonSpace(chunk[end]); end += 1)
    if (chunk[end] === LINE_FEED) {
      lines += 1;
      lastLine = end + 1;
    }
  return { end, lines, lastLine };
}
