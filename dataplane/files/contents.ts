/** Where the bytes of files are. Two implementations, one suite of tests (contents.store.test.ts). */
import { countMoved } from "../lib/garbage.ts";
import type { PieceReader } from "../lib/piece-reader.ts";

/** Bytes of a file in memory while it is stored: one part of an S3 upload (at least 5 MiB each, at most 10,000 to a file). */
export const HELD_BYTES = 8 * 1024 * 1024;

/** A file whose bytes come in. */
export interface WrittenFile {
  readonly id: string;
  readonly organizationId: string;
}

export interface FileContents {
  /** Name in the `storage` column: a file is read from where it was written. */
  readonly storage: "postgres" | "s3";
  /**
   * Stores a file's bytes as they come, never more than a few MiB in memory; `onProgress` is called after each
   * stored piece. Throws what `source` throws; `remove` deletes what was stored until then.
   * @returns the number of bytes.
   */
  write(file: WrittenFile, source: AsyncIterable<Buffer>, onProgress: () => Promise<void>): Promise<number>;
  /** Yields the bytes from `start` to `end` (exclusive), in pieces as large as `reader` takes them. */
  read(id: string, start: number, end: number, reader?: PieceReader): AsyncIterable<Buffer>;
  /** Deletes everything of a file, also of one that was never finished. Repeating it changes nothing. */
  remove(id: string): Promise<void>;
}

/** First size of the buffer, which grows with the file: most files are small. */
const FIRST_BYTES = 64 * 1024;

/**
 * Cuts a stream into pieces of exactly `bytes`, except the last. All share one buffer: a piece is valid until the next one is
 * requested. Chunks are copied at once, so that none is kept: a large upload must leave no garbage that grows with it.
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

/** Returns the same buffer, or a larger one with its contents. */
function withRoom(piece: Buffer, length: number, more: number, most: number): Buffer {
  if (length + more <= piece.length) return piece;
  const larger = Buffer.allocUnsafeSlow(Math.min(most, Math.max(2 * piece.length, length + more)));
  piece.copy(larger, 0, 0, length);
  return larger;
}
