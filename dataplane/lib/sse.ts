/**
 * Framing of server-sent events, bounded and indifferent to how the bytes were cut (WHATWG HTML §9.2.6).
 * Two forms: `SseScanner` finds the frames in the bytes without copying or decoding them, for relay;
 * `SseReader` yields decoded events, for conversion.
 */
import { BYTE_ORDER_MARK, beginsWithMark } from "./byte-order-mark.ts";
import { COLON } from "./json-bytes.ts";

/** One event may be this long (rule 2.14); a longer one ends the stream. */
export const MAX_EVENT_BYTES = 8 * 1024 * 1024;

/** From this length on an event is looked at before it is read: it may hold more than can be read in one step (rule 7.3). */
export const LONG_EVENT_BYTES = 64 * 1024;

const NOTHING = Buffer.alloc(0);

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const LOWER_D = 0x64;

/** An upstream sent an event beyond MAX_EVENT_BYTES. */
export class SseOverflow extends Error {
  constructor() {
    super(`A server-sent event is longer than ${MAX_EVENT_BYTES} bytes`);
    this.name = "SseOverflow";
  }
}

/**
 * One frame: everything up to and including a blank line. All offsets are into `bytes`, whose content never
 * changes, while the frame object itself is used again for the next frame: copy what has to stay.
 */
export interface SseFrame {
  bytes: Buffer;
  start: number;
  end: number;
  /** Value of the last `event:` line; empty span when there was none. */
  nameStart: number;
  nameEnd: number;
  /** Value of the first `data:` line. */
  dataStart: number;
  dataEnd: number;
  /** 0: comments or blank lines only, nothing that a client would see. */
  dataLines: number;
  /** False for what was left when the stream ended without the closing blank line. */
  closed: boolean;
}

/** Finds frames. `visit` is called for each, in order, while chunks are read and at the `end`. */
export class SseScanner {
  readonly #visit: (frame: SseFrame) => void;
  readonly #frame: SseFrame = {
    bytes: NOTHING,
    start: 0,
    end: 0,
    nameStart: 0,
    nameEnd: 0,
    dataStart: 0,
    dataEnd: 0,
    dataLines: 0,
    closed: true,
  };
  /** The beginning of a frame whose end has not come yet; it grows by doubling. */
  #carry: Buffer = NOTHING;
  #carried = 0;
  #lineStart = 0;
  /** Everything before this offset has been searched for line ends. */
  #searched = 0;
  /** Whether the last byte was a CR that ended a line: an LF behind it belongs to it. */
  #afterCr = false;
  #atStart = true;
  /** Chunks that were added. Those before `#at` are read; of the one at `#at` only `#rest` is unread, unless that is null. */
  #chunks: readonly Buffer[] = [];
  #at = 0;
  #rest: Buffer | null = null;
  /** Frames that may still be visited before the reading of a chunk is broken off. */
  #left = 0;

  constructor(visit: (frame: SseFrame) => void) {
    this.#visit = visit;
  }

  /** Adds chunks behind those that are unread. */
  add(chunks: readonly Buffer[]): void {
    this.#chunks = this.hasUnread ? [...this.#chunks.slice(this.#at), ...chunks] : chunks;
    this.#at = 0;
  }

  /** Whether any added chunks are unread. */
  get hasUnread(): boolean {
    return this.#at < this.#chunks.length;
  }

  /** Bytes of memory that an unfinished event takes. */
  get heldBytes(): number {
    return this.#carry.length;
  }

  /** Reads the next chunk, as far as its first `most` frames. @returns the number of frames. @throws SseOverflow */
  readChunk(most: number): number {
    const chunk = this.#rest ?? this.#chunks[this.#at];
    if (chunk === undefined) return 0;
    this.#rest = null;
    this.#left = most;
    this.#read(chunk);
    if (this.#rest === null) this.#at += 1;
    return most - this.#left;
  }

  /** Called from `visit`: the reading of this chunk ends behind the frame. */
  breakOff(): void {
    this.#left = 1;
  }

  /** Reads a chunk to its end. @throws SseOverflow */
  push(chunk: Buffer): void {
    this.add([chunk]);
    while (this.hasUnread) this.readChunk(Number.MAX_SAFE_INTEGER);
  }

  #read(chunk: Buffer): void {
    if (chunk.length === 0) return;
    const bytes = this.#carried === 0 ? chunk : this.#append(chunk);
    const rest = this.#scan(bytes);
    const left = bytes.length - rest;
    if (left > MAX_EVENT_BYTES) throw new SseOverflow();
    if (this.#carried > 0 && rest === 0) return;
    this.#keep(bytes, rest, left);
  }

  /** Visits what is left, as a frame that is not closed, if it holds data. */
  end(): void {
    const bytes = this.#carry.subarray(0, this.#carried);
    this.#carried = 0;
    this.#carry = NOTHING;
    if (bytes.length === 0) return;
    this.#frame.bytes = bytes;
    // The LF after a blank line's CR never came: the frame is closed all the same.
    const closed = bytes.length === this.#lineStart + 1 && bytes[this.#lineStart] === CR;
    if (this.#lineStart < bytes.length) this.#line(this.#lineStart, bytes.length);
    if (this.#frame.dataLines > 0) this.#emit(bytes.length, closed);
  }

  #append(chunk: Buffer): Buffer {
    const length = this.#carried + chunk.length;
    if (length > this.#carry.length) {
      const grown = Buffer.allocUnsafe(Math.max(length, 2 * this.#carry.length));
      this.#carry.copy(grown, 0, 0, this.#carried);
      this.#carry = grown;
    }
    chunk.copy(this.#carry, this.#carried);
    this.#carried = length;
    return this.#carry.subarray(0, length);
  }

  /** Keeps the beginning of an unfinished frame, and nothing else. Never in the old buffer: frames in it may still be in use. */
  #keep(bytes: Buffer, from: number, length: number): void {
    this.#frame.bytes = NOTHING;
    this.#carried = length;
    this.#carry = NOTHING;
    if (length === 0) return;
    this.#carry = Buffer.allocUnsafe(Math.max(1024, 2 * length));
    bytes.copy(this.#carry, 0, from);
    this.#shift(from);
  }

  /** Moves every offset of the unfinished frame to a buffer in which it begins at 0. */
  #shift(by: number): void {
    const frame = this.#frame;
    frame.start -= by;
    frame.nameStart -= by;
    frame.nameEnd -= by;
    frame.dataStart -= by;
    frame.dataEnd -= by;
    this.#lineStart -= by;
    this.#searched -= by;
  }

  /** @returns where the unfinished frame begins; the end of the bytes where the reading was broken off between two frames. */
  #scan(bytes: Buffer): number {
    const frame = this.#frame;
    if (frame.bytes !== bytes) frame.bytes = bytes;
    if (this.#carried === 0) {
      this.#begin(0);
      this.#searched = 0;
    }
    if (this.#afterCr && bytes[this.#searched] === LF) {
      this.#lineStart = this.#searched + 1;
      this.#searched += 1;
    }
    this.#afterCr = false;
    if (this.#atStart && !this.#skipBom(bytes)) return 0;
    // Carriage returns are rare: one native search a chunk spares looking for them byte by byte.
    const hasCr = bytes.indexOf(CR, this.#searched) !== -1;
    for (;;) {
      const lineEnd = hasCr ? nextLineEnd(bytes, this.#searched) : nextLf(bytes, this.#searched);
      if (lineEnd === -1) break;
      if (this.#mayLackLf(bytes, lineEnd)) {
        this.#searched = lineEnd;
        return frame.start;
      }
      const next = this.#afterLineEnd(bytes, lineEnd);
      if (lineEnd === this.#lineStart) {
        this.#emit(next, true);
        this.#left -= 1;
        if (this.#left === 0 && next < bytes.length) {
          this.#rest = bytes.subarray(next);
          return bytes.length;
        }
      } else this.#line(this.#lineStart, lineEnd);
      this.#lineStart = next;
      this.#searched = next;
    }
    this.#searched = bytes.length;
    return frame.start;
  }

  /** Whether a blank line lacks its LF, in a stream with CRLF: it belongs to this frame. Streams without CRLF do not wait. */
  #mayLackLf(bytes: Buffer, lineEnd: number): boolean {
    const isLast = lineEnd === this.#lineStart && lineEnd + 1 === bytes.length && bytes[lineEnd] === CR;
    return (
      isLast && lineEnd - 2 >= this.#frame.start && bytes[lineEnd - 1] === LF && bytes[lineEnd - 2] === CR
    );
  }

  #afterLineEnd(bytes: Buffer, lineEnd: number): number {
    if (bytes[lineEnd] === LF) return lineEnd + 1;
    if (lineEnd + 1 === bytes.length) this.#afterCr = true;
    return bytes[lineEnd + 1] === LF ? lineEnd + 2 : lineEnd + 1;
  }

  /** @returns false while it is not yet clear whether the stream begins with a byte order mark. */
  #skipBom(bytes: Buffer): boolean {
    if (bytes[0] === BYTE_ORDER_MARK[0] && bytes.length < BYTE_ORDER_MARK.length) return false;
    this.#atStart = false;
    if (beginsWithMark(bytes)) {
      this.#lineStart = BYTE_ORDER_MARK.length;
      this.#searched = BYTE_ORDER_MARK.length;
    }
    return true;
  }

  #begin(at: number): void {
    const frame = this.#frame;
    frame.start = at;
    frame.nameStart = frame.nameEnd = 0;
    frame.dataStart = frame.dataEnd = 0;
    frame.dataLines = 0;
    this.#lineStart = at;
  }

  #emit(end: number, closed: boolean): void {
    const frame = this.#frame;
    frame.end = end;
    frame.closed = closed;
    this.#visit(frame);
    this.#begin(end);
  }

  #line(start: number, end: number): void {
    const { bytes } = this.#frame;
    const first = bytes[start];
    if (first === LOWER_D && startsWith(bytes, start, end, "data")) {
      this.#frame.dataLines += 1;
      if (this.#frame.dataLines > 1) return;
      this.#frame.dataStart = valueStart(bytes, start + 4, end);
      this.#frame.dataEnd = end;
    } else if (first === 0x65 && startsWith(bytes, start, end, "event")) {
      this.#frame.nameStart = valueStart(bytes, start + 5, end);
      this.#frame.nameEnd = end;
    }
  }
}

/** Finds the next LF. A look at the byte ahead, often the LF of a blank line or the chunk's end, costs less than a native search. */
function nextLf(bytes: Buffer, from: number): number {
  if (bytes[from] === LF) return from;
  return from === bytes.length ? -1 : bytes.indexOf(LF, from);
}

function nextLineEnd(bytes: Buffer, from: number): number {
  for (let at = from; at < bytes.length; at += 1) if (bytes[at] === LF || bytes[at] === CR) return at;
  return -1;
}

/** Whether the line is the field `name`, with or without a value. */
function startsWith(bytes: Buffer, start: number, end: number, name: string): boolean {
  const after = start + name.length;
  if (after > end || (after < end && bytes[after] !== COLON)) return false;
  for (let index = 1; index < name.length; index += 1)
    if (bytes[start + index] !== name.charCodeAt(index)) return false;
  return true;
}

/** The offset behind the colon and one space. */
function valueStart(bytes: Buffer, afterName: number, end: number): number {
  if (afterName >= end) return end;
  return bytes[afterName + 1] === SPACE && afterName + 1 < end ? afterName + 2 : afterName + 1;
}

/** The name of events that have none (WHATWG HTML, "Interpreting an event stream"). */
const UNNAMED = "message";

/** Returns the `event:` value of a frame; empty when there is none, or it is `UNNAMED`. */
export function frameName(frame: SseFrame): string {
  if (frame.nameEnd <= frame.nameStart) return "";
  const name = frame.bytes.toString("utf8", frame.nameStart, frame.nameEnd);
  return name === UNNAMED ? "" : name;
}

/** The data of a frame: a view where it is one line, else its lines joined by LF. */
export function frameData(frame: SseFrame): Buffer {
  if (frame.dataLines <= 1) return frame.bytes.subarray(frame.dataStart, frame.dataEnd);
  const { bytes, start, end } = frame;
  const data = Buffer.allocUnsafe(end - start);
  let length = 0;
  let isFirst = true;
  for (let at = start; at < end;) {
    const next = nextLineEnd(bytes, at);
    const lineEnd = next === -1 ? end : next;
    if (bytes[at] === LOWER_D && startsWith(bytes, at, lineEnd, "data")) {
      if (!isFirst) data[length++] = LF;
      isFirst = false;
      // There may be millions of lines, of a byte each.
      for (let from = valueStart(bytes, at + 4, lineEnd); from < lineEnd; from += 1)
        data[length++] = bytes[from] as number;
    }
    at = bytes[lineEnd] === CR && bytes[lineEnd + 1] === LF ? lineEnd + 2 : lineEnd + 1;
  }
  return data.subarray(0, length);
}

/** One decoded event. */
export interface ReadEvent {
  readonly event: string;
  readonly data: string;
}

/** Decodes events; frames without data are left out. */
export class SseReader {
  #events: ReadEvent[] = [];
  readonly #setsAside: ((frame: SseFrame) => boolean) | undefined;
  readonly #scanner = new SseScanner((frame) => {
    if (frame.dataLines === 0) return;
    const isLong = frame.end - frame.start > LONG_EVENT_BYTES;
    if (isLong && this.#setsAside?.(frame) === true) this.#scanner.breakOff();
    else this.#events.push({ event: frameName(frame), data: frameData(frame).toString("utf8") });
  });

  /** @param setsAside called with each long event; true: it is read elsewhere, and the reading of its chunk ends behind it. */
  constructor(setsAside?: (frame: SseFrame) => boolean) {
    this.#setsAside = setsAside;
  }

  /** As in `SseScanner`. */
  add(chunks: readonly Buffer[]): void {
    this.#scanner.add(chunks);
  }

  get hasUnread(): boolean {
    return this.#scanner.hasUnread;
  }

  get heldBytes(): number {
    return this.#scanner.heldBytes;
  }

  readChunk(most: number): number {
    return this.#scanner.readChunk(most);
  }

  /** Reads a chunk to its end. @throws SseOverflow */
  push(chunk: Buffer): readonly ReadEvent[] {
    this.#scanner.push(chunk);
    return this.take();
  }

  /** Ends the stream. @returns the last event, if its blank line did not come. */
  end(): readonly ReadEvent[] {
    this.#scanner.end();
    return this.take();
  }

  /** Returns the events that were read since the last call. */
  take(): readonly ReadEvent[] {
    if (this.#events.length === 0) return this.#events;
    const events = this.#events;
    this.#events = [];
    return events;
  }
}
