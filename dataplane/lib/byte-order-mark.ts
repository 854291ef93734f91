/** The mark that may stand before UTF-8 (U+FEFF), and is no part of it. */
export const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

export const beginsWithMark = (bytes: Uint8Array): boolean =>
  bytes[0] === BYTE_ORDER_MARK[0] && bytes[1] === BYTE_ORDER_MARK[1] && bytes[2] === BYTE_ORDER_MARK[2];

/** The same memory without the mark. */
export const withoutMark = (bytes: Buffer): Buffer =>
  beginsWithMark(bytes) ? bytes.subarray(BYTE_ORDER_MARK.length) : bytes;
