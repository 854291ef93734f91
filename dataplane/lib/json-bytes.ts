/** The bytes that structure a JSON text; a colon also parts the name of a server-sent event's field from its value. */
export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_OBJECT = 0x7b;
export const CLOSE_OBJECT = 0x7d;
export const OPEN_ARRAY = 0x5b;
export const CLOSE_ARRAY = 0x5d;

export const isJsonSpace = (byte: number | undefined): boolean =>
  byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Whether nothing stands in a text but white space. */
export function isBlank(bytes: Uint8Array): boolean {
  let at = 0;
  while (isJsonSpace(bytes[at])) at += 1;
  return at === bytes.length;
}
