import { isUtf8 } from "node:buffer";

/** Bytes that an upstream calls text, as every client reads them: some engines cut an answer within a character. */
export const asUtf8 = (bytes: Buffer): Buffer =>
  isUtf8(bytes) ? bytes : Buffer.from(bytes.toString("utf8"));
