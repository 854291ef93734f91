import { GatheredPieces } from "./small-pieces.ts";
import { BACKSLASH, CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from "./json-bytes.ts";

/** Gathers one JSON value from chunks and finds its end, by quotes and brackets alone. */
export class JsonPiece {
  complete = false;
  length = 0;
  /** Chunks as the network cut them, which may be byte by byte. */
  readonly #parts = new GatheredPieces();
  #depth = 0;
  #inString = false;
  #escaped = false;
  /** The value is a number or a literal, which ends before the next delimiter. */
  #scalar = false;

  /** Adds the bytes that belong to the value; returns the index of the first byte that does not. */
  push(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length && !this.complete) {
      if (this.#inString) {
        at = this.#pushString(chunk, at);
        continue;
      }
      const byte = chunk[at] ?? 0;
      if (this.#scalar) {
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
    this.#parts.add(chunk.subarray(from, at));
    this.length += at - from;
    return at;
  }

  /** `push` inside a string, which is most of a large body: goes to the string's end. */
  #pushString(chunk: Buffer, from: number): number {
    // Local copies: both are compared with every byte.
    const [quote, backslash] = [QUOTE, BACKSLASH];
    let escaped = this.#escaped;
    let at = from;
    for (; at < chunk.length; at += 1) {
      const byte = chunk[at];
      if (escaped) escaped = false;
      else if (byte === backslash) escaped = true;
      else if (byte === quote) {
        this.#inString = false;
        this.complete = this.#depth === 0;
        at += 1;
        break;
      }
    }
    this.#escaped = escaped;
    return at;
  }

  take(): Buffer {
    const parts = this.#parts.take();
    const [only] = parts;
    return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts, this.length);
  }
}

const isDelimiter = (byte: number) =>
  byte === COMMA || byte === CLOSE_ARRAY || byte === CLOSE_OBJECT || byte <= 0x20;
