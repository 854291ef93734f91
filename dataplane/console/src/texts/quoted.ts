/** Names of keys and files within sentences: anybody's text. */

/** Characters that are written from the right, and those that say in which order others are. */
const TURNING =
  /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const ISOLATES = /[\u2066-\u2069]/g;

/** Returns a name in quotation marks. Whatever order its letters have, that of the sentence around it stays. */
export function quoted(name: string): string {
  // An isolate that the name begins or ends itself would end ours, or stay open behind it.
  return TURNING.test(name) ? `“\u2068${name.replaceAll(ISOLATES, "")}\u2069”` : `“${name}”`;
}
