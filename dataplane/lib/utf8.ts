import { isUtf8 } from "node:buffer";

/** Makes an upstream's text valid UTF-8, as every client reads it: some engines cut an answer within a character. */
export const asUtf8 = (bytes: Buffer): Buffer =>
  isUtf8(bytes) ? bytes : Buffer.from(bytes.toString("utf8"));
