/** Finds the path to a byte of a JSON text. Used for errors only. */
import type { PathStep } from "./field-path.ts";
import { BACKSLASH, CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from "./json-bytes.ts";

/** Bounds of a shown path: steps, and characters of a key. */
const MAX_STEPS = 20;
const MAX_KEY = 60;

/**
 * The path to the innermost array or object around `position`, its beginning when it is long. Everything before
 * `position` must be the beginning of valid JSON.
 */
export function placeOf(bytes: Buffer, position: number): PathStep[] {
  /** For each open array the index of its current item, for each open object where its last key begins and ends. */
  const open: (number | { start: number; end: number } | null)[] = [];
  let keyAhead = false;
  for (let at = 0; at < position; at += 1) {
    const byte = bytes[at];
    if (byte === OPEN_ARRAY) open.push(0);
    else if (byte === OPEN_OBJECT) {
      open.push(null);
      keyAhead = true;
    } else if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) {
      open.pop();
      keyAhead = false;
    } else if (byte === COMMA) {
      const top = open.at(-1);
      if (typeof top === "number") open[open.length - 1] = top + 1;
      else keyAhead = true;
    } else if (byte === QUOTE) {
      const start = at;
      for (at += 1; at < position && bytes[at] !== QUOTE; at += 1) if (bytes[at] === BACKSLASH) at += 1;
      if (keyAhead && at < position) open[open.length - 1] = { start, end: at + 1 };
      keyAhead = false;
    }
  }
  // The last step is the place of `position` within the innermost one, and no part of its path.
  return open.slice(0, Math.min(MAX_STEPS, Math.max(0, open.length - 1))).map((step) => {
    if (typeof step === "number" || step === null) return step ?? "";
    return (JSON.parse(bytes.toString("utf8", step.start, step.end)) as string).slice(0, MAX_KEY);
  });
}
