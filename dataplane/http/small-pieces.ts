/** A body's pieces may be as small as a byte each, and a Buffer of one byte takes some 500 bytes of memory. */

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

  /** What was gathered, which is forgotten here; null: nothing. */
  take(): Buffer | null {
    const gathered = this.#block?.subarray(0, this.#filled) ?? null;
    this.#block = null;
    this.#filled = 0;
    return gathered;
  }
}
