/** Part of an answer: bytes, text that is written as UTF-8, or a list of both that is written as one. */
export type AnswerBytes = Buffer | string | readonly (Buffer | string)[];

export function lengthOf(bytes: AnswerBytes): number {
  if (typeof bytes === "string") return Buffer.byteLength(bytes);
  if (Buffer.isBuffer(bytes)) return bytes.length;
  let length = 0;
  for (const piece of bytes) length += lengthOf(piece);
  return length;
}

/** Writes `bytes` into a buffer with room for them. `Buffer.concat` would check each piece anew. @returns the offset behind them. */
export function putBytes(target: Buffer, from: number, bytes: AnswerBytes): number {
  if (typeof bytes === "string") return from + target.write(bytes, from);
  if (Buffer.isBuffer(bytes)) return from + bytes.copy(target, from);
  let at = from;
  for (const piece of bytes) at = putBytes(target, at, piece);
  return at;
}

/** Copies `bytes` into one buffer of their own. */
export function joinedBytes(bytes: AnswerBytes): Buffer {
  const all = Buffer.allocUnsafe(lengthOf(bytes));
  putBytes(all, 0, bytes);
  return all;
}
