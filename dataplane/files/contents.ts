/** Where the bytes of files are. Two implementations, one suite of tests (contents.store.test.ts). */

/** The most that is held of a file while it is stored: a part of S3's, which has at least 5 MiB, at most 10,000 to a file. */
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

/** Cuts a stream into pieces of exactly `bytes`, save the last. */
export async function* piecesOf(source: AsyncIterable<Buffer>, bytes: number): AsyncIterable<Buffer> {
  let waiting: Buffer[] = [];
  let length = 0;
  for await (const chunk of source) {
    let rest = chunk;
    while (length + rest.length >= bytes) {
      const taken = bytes - length;
      yield Buffer.concat([...waiting, rest.subarray(0, taken)], bytes);
      rest = rest.subarray(taken);
      waiting = [];
      length = 0;
    }
    if (rest.length === 0) continue;
    waiting.push(rest);
    length += rest.length;
  }
  if (length > 0) yield Buffer.concat(waiting, length);
}
