/** Where the bytes of files are. Two implementations, one suite of tests (contents.store.test.ts). */
import { countMoved } from "../lib/garbage.ts";

/** How much of a file is in memory while it is stored: one part of an S3 upload (5 MiB at the least, 10,000 of them to a file). */
export const HELD_BYTES = 8 * 1024 * 1024;

export interface FileContents {
  /** Name in the `storage` column: a file is read from where it was written. */
  readonly storage: "postgres" | "s3";
  /**
   * Stores a file's bytes as they come, never more than a few MiB in memory; `onProgress` is called after each
   * stored piece. Throws what `source` throws; whatever was stored until then goes with `remove`.
   * @returns the number of bytes.
   */
  write(id: string, source: AsyncIterable<Buffer>, onProgress: () => Promise<void>): Promise<number>;
  /** Bytes from `start` to `end` (exclusive), in pieces. */
  read(id: string, start: number, end: number): AsyncIterable<Buffer>;
  /** Takes away everything of a file, also of one that was never finished. Repeating it changes nothing. */
  remove(id: string): Promise<void>;
}

/** What is held of a file before its size is known to be more: most files are small. */
const FIRST_BYTES = 64 * 1024;

/**
 * Cuts a stream into pieces of exactly `bytes`, save the last. All are in the same memory: one is good until the next one is
 * asked for. What came is copied at once, so that nothing of the stream is kept: a large upload is to leave no garbage that
 * grows with it.
 */
export async function* piecesOf(source: AsyncIterable<Buffer>, bytes: number): AsyncIterable<Buffer> {
  let piece: Buffer = Buffer.allocUnsafeSlow(Math.min(FIRST_BYTES, bytes));
  let length = 0;
  for await (const chunk of source) {
    for (let at = 0; at < chunk.length;) {
      const taken = Math.min(chunk.length - at, bytes - length);
      piece = withRoom(piece, length, taken, bytes);
      length += chunk.copy(piece, length, at, at + taken);
      countMoved(taken);
      at += taken;
      if (length < bytes) continue;
      yield piece;
      length = 0;
    }
  }
  if (length > 0) yield piece.subarray(0, length);
}

/** The same memory, or twice as much with what stood in it. */
function withRoom(piece: Buffer, length: number, more: number, most: number): Buffer {
  if (length + more <= piece.length) return piece;
  const larger = Buffer.allocUnsafeSlow(Math.min(most, Math.max(2 * piece.length, length + more)));
  piece.copy(larger, 0, 0, length);
  return larger;
}
