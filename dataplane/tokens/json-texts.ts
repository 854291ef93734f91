/**
 * Writes a parsed value as `JSON.stringify` does, but in pieces: a value of megabytes would block the thread. Without
 * recursion, so that no depth overflows the stack. Pure.
 */

/** Length from which on a piece is yielded, and characters of a string that are escaped at a time. */
const PIECE_CHARACTERS = 16 * 1024;
/** Most values between two yields. */
const VALUES_AT_ONCE = 64;

/** A list or an object that is being written. */
interface Open {
  readonly value: object;
  /** null: a list. */
  readonly keys: readonly string[] | null;
  readonly length: number;
  at: number;
}

/** Yields pieces of the JSON in order; an empty one now and then, so that no step is long. */
export function* jsonTexts(root: unknown): Generator<string> {
  const open: Open[] = [];
  let piece = "";
  let value = root;
  for (let values = 1; ; values += 1) {
    if (typeof value === "string") {
      piece += '"';
      for (let at = 0; at < value.length; at += PIECE_CHARACTERS) {
        piece += JSON.stringify(value.slice(at, at + PIECE_CHARACTERS)).slice(1, -1);
        if (piece.length < PIECE_CHARACTERS) continue;
        yield piece;
        piece = "";
      }
      piece += '"';
    } else if (typeof value === "object" && value !== null) {
      const keys = Array.isArray(value) ? null : Object.keys(value);
      open.push({ value, keys, length: keys?.length ?? (value as unknown[]).length, at: 0 });
      piece += keys === null ? "[" : "{";
    } else piece += JSON.stringify(value) ?? "null";

    let list = open.at(-1);
    while (list !== undefined && list.at === list.length) {
      piece += list.keys === null ? "]" : "}";
      open.pop();
      list = open.at(-1);
      // Thousands of nested values may end at once.
      if (open.length % VALUES_AT_ONCE === 0) yield "";
    }
    if (piece.length >= PIECE_CHARACTERS || list === undefined) {
      yield piece;
      piece = "";
    } else if (values % VALUES_AT_ONCE === 0) yield "";
    if (list === undefined) return;
    if (list.at > 0) piece += ",";
    const key = list.keys?.[list.at];
    if (key !== undefined) piece += `${JSON.stringify(key)}:`;
    value = Reflect.get(list.value, key ?? list.at);
    list.at += 1;
  }
}
