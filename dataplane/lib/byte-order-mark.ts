/** The mark (U+FEFF) that may precede a text in UTF-8, and is no part of it. */
export const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

export const beginsWithMark = (bytes: Uint8Array): boolean =>
  bytes[0] === BYTE_ORDER_MARK[0] && bytes[1] === BYTE_ORDER_MARK[1] && bytes[2] === BYTE_ORDER_MARK[2];

/** Returns a view of the bytes without the mark. */
export const withoutMark = (bytes: Buffer): Buffer =>
  beginsWithMark(bytes) ? bytes.subarray(BYTE_ORDER_MARK.length) : bytes;

/** Returns the pieces of a text, none of which is empty, without the mark. */
export function piecesWithoutMark(pieces: readonly Buffer[]): readonly Buffer[] {
  let left = BYTE_ORDER_MARK.length;
  const beginning = pieces.slice(0, left).map((piece) => piece.subarray(0, left));
  if (!beginsWithMark(Buffer.concat(beginning))) return pieces;
  return pieces.flatMap((piece) => {
    const skipped = Math.min(left, piece.length);
    left -= skipped;
    return skipped === piece.length ? [] : [piece.subarray(skipped)];
  });
}
