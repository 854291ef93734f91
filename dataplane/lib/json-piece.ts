import { BACKSLASH, CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from "./json-bytes.ts";

/** One JSON value on its way in: where it ends, judged by quotes and brackets alone. */
export class JsonPiece {
  complete = false;
  length = 0;
  readonly #parts: Buffer[] = [];
  #depth = 0;
  #inString = false;
  #escaped = false;
  /** A number or a word: it ends before the next delimiter. */
  #scalar = false;

  /** Takes what belongs to the value; returns the index of the first byte that does not. */
  push(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length && !this.complete) {
      const byte = chunk[at] ?? 0;
      if (this.#inString) {
        if (this.#escaped) this.#escaped = false;
        else if (byte === BACKSLASH) this.#escaped = true;
        else if (byte === QUOTE) {
          this.#inString = false;
          this.complete = this.#depth === 0;
        }
        at += 1;
      } else if (this.#scalar) {
        if (isDelimiter(byte)) this.complete = true;
        else at += 1;
      } else {
        at += 1;
        if (byte === QUOTE) this.#inString = true;
        else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) this.#depth += 1;
        else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
          this.#depth -= 1;
          this.complete = this.#depth === 0;
        } else if (this.#depth === 0) this.#scalar = true;
      }
    }
    this.#parts.push(chunk.subarray(from, at));
    this.length += at - from;
    return at;
  }

  take(): Buffer {
    const [only] = this.#parts;
    return this.#parts.length === 1 && only !== undefined ? only : Buffer.concat(this.#parts, this.length);
  }
}

const isDelimiter = (byte: number) =>
  byte === COMMA || byte === CLOSE_ARRAY || byte === CLOSE_OBJECT || byte <= 0x20;
