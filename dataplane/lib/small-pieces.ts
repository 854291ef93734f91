/** A body's pieces may be as small as a byte each, and a Buffer of one byte takes some 500 bytes of memory. */
import { Slices } from "./slices.ts";

/** A larger piece is worth a Buffer of its own. */
export const SMALL_PIECE_BYTES = 1024;
const BLOCK_BYTES = 16 * 1024;

/** Copies small pieces together. */
export class SmallPieces {
  #block: Buffer | null = null;
  #filled = 0;

  /**
   * Takes a piece of at most `SMALL_PIECE_BYTES`.
   * @returns what was gathered before, when the piece found no room beside it; else null.
   */
  add(piece: Buffer): Buffer | null {
    const before = this.#filled + piece.length > BLOCK_BYTES ? this.take() : null;
    this.#block ??= Buffer.allocUnsafeSlow(BLOCK_BYTES);
    this.#filled += piece.copy(this.#block, this.#filled);
    return before;
  }

  /** Removes and returns the gathered bytes; null: none. */
  take(): Buffer | null {
    const gathered = this.#block?.subarray(0, this.#filled) ?? null;
    this.#block = null;
    this.#filled = 0;
    return gathered;
  }
}

/** Keeps the pieces of one body until it is complete. */
export class GatheredPieces {
  length = 0;
  #parts: Buffer[] = [];
  /** Small pieces that came after all of `#parts`. */
  readonly #small = new SmallPieces();

  add(piece: Buffer): void {
    // Most bodies are one piece, which needs no copy.
    if (this.length > 0 && piece.length <= SMALL_PIECE_BYTES) this.#push(this.#small.add(piece));
    else {
      this.#push(this.#small.take());
      this.#push(piece);
    }
    this.length += piece.length;
  }

  /** Removes and returns all pieces in order. */
  take(): readonly Buffer[] {
    this.#push(this.#small.take());
    const parts = this.#parts;
    this.#parts = [];
    this.length = 0;
    return parts;
  }

  #push(part: Buffer | null): void {
    if (part !== null) this.#parts.push(part);
  }
}

/** Milliseconds of copying before others have a turn; a piece of 64 KiB takes some 20 µs. */
const JOIN_SLICE_MS = 1;

/** Joins pieces in slices; one alone is not copied. `Buffer.concat` takes 10 ms for 32 MiB, because the system provides memory page by page. */
export async function joinedInSlices(
  parts: readonly Buffer[],
  length = parts.reduce((sum, part) => sum + part.length, 0),
): Promise<Buffer> {
  if (parts.length === 1) return parts[0] as Buffer;
  const whole = Buffer.allocUnsafeSlow(length);
  const slices = new Slices(JOIN_SLICE_MS);
  let at = 0;
  for (const part of parts) {
    if (slices.usedUp) await slices.pause();
    at += part.copy(whole, at);
  }
  return whole;
}
