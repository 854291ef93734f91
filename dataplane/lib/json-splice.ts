/**
 * Edits JSON by position. A relayed body is never decoded and encoded again: that would break prompt caches, integers
 * beyond 2^53 and whatever a newer dialect put there (design.md §4.2). So an edit replaces, inserts or removes exactly
 * the bytes whose places json-reader.ts found.
 */
import type { ObjectSpan, Span } from "./json-reader.ts";

/** Replaces the bytes of `start`…`end` by `text`; `start` = `end` inserts. */
export interface Edit extends Span {
  readonly text: string | Buffer;
}

/**
 * Returns `bytes` with all edits applied; every other byte is unchanged. Edits may come in any order; those at one position
 * are applied in the order given. They must not overlap, except that an edit wholly inside a removed span is dropped.
 */
export function splice(bytes: Buffer, edits: readonly Edit[]): Buffer {
  if (edits.length === 0) return bytes;
  const ordered = edits.length === 1 ? edits : [...edits].sort((one, other) => one.start - other.start);
  let at = 0;
  let removedTo = 0;
  let length = bytes.length;
  const applied: Edit[] = [];
  for (const edit of ordered) {
    const { start, end, text } = edit;
    if (start < at && end <= removedTo) continue;
    if (start < at || end < start || end > bytes.length) throw new RangeError("edits overlap");
    at = end;
    if (text.length === 0) removedTo = end;
    length += Buffer.byteLength(text) - (end - start);
    applied.push(edit);
  }
  // Most bodies have one or two edits: writing into place costs a third of cutting and concatenating.
  const result = Buffer.allocUnsafe(length);
  let from = 0;
  let to = 0;
  for (const { start, end, text } of applied) {
    to += bytes.copy(result, to, from, start);
    to += typeof text === "string" ? result.write(text, to) : text.copy(result, to);
    from = end;
  }
  bytes.copy(result, to, from);
  return result;
}

/** Replaces a value by `value` (JSON text). */
export const replaceValue = ({ start, end }: Span, value: string): Edit => ({ start, end, text: value });

/**
 * Inserts members at the beginning of an object. `remaining`: how many of its own members stay, so that the
 * last inserted one gets a comma only where another follows.
 */
export function insertMembers(
  object: ObjectSpan,
  members: readonly (readonly [key: string, value: string])[],
  remaining = object.members.length,
): Edit[] {
  if (members.length === 0) return [];
  const text = members.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(",");
  const at = object.start + 1;
  return [{ start: at, end: at, text: remaining > 0 ? `${text},` : text }];
}

/**
 * Removes the list's entries for which `gone` is true, each with one comma. Serves members (whose text begins
 * with their key) and array items alike; entries are in the order of the text.
 */
export function removeEntries(
  entries: readonly (Span & { readonly keyStart?: number })[],
  gone: (index: number) => boolean,
): Edit[] {
  const from = (index: number) => entries[index]?.keyStart ?? entries[index]?.start ?? 0;
  let lastKept = entries.length - 1;
  while (lastKept >= 0 && gone(lastKept)) lastKept -= 1;
  const edits: Edit[] = [];
  for (let index = 0; index < lastKept; index += 1)
    if (gone(index)) edits.push({ start: from(index), end: from(index + 1), text: "" });
  const last = entries.at(-1);
  if (last !== undefined && lastKept < entries.length - 1) {
    const start = lastKept < 0 ? from(0) : (entries[lastKept]?.end ?? 0);
    edits.push({ start, end: last.end, text: "" });
  }
  return edits;
}
