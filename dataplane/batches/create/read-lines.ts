/** One physical line of a JSON Lines file, without its end. */
export interface Line {
  /** From 1, blank lines counted. */
  readonly number: number;
  /** null: the line is longer than `maxBytes`; its bytes were dropped. */
  readonly bytes: Buffer | null;
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/** Cuts a stream into lines; at most one line is in memory. LF and CRLF end a line, the last one needs neither. */
export async function* readLines(source: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Line> {
  let number = 1;
  let parts: Buffer[] = [];
  let length = 0;
  const add = (part: Buffer) => {
    length += part.length;
    if (length > maxBytes) parts = [];
    else parts.push(part);
  };
  const take = (): Line => {
    const bytes = length > maxBytes ? null : Buffer.concat(parts, length);
    parts = [];
    length = 0;
    return { number: number++, bytes: bytes?.at(-1) === CARRIAGE_RETURN ? bytes.subarray(0, -1) : bytes };
  };
  for await (const chunk of source) {
    let from = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, from)) {
      add(chunk.subarray(from, end));
      yield take();
      from = end + 1;
    }
    if (from < chunk.length) add(chunk.subarray(from));
  }
  if (length > 0) yield take();
}
