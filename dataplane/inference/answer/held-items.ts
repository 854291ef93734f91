/**
 * The output items of a whole Responses answer, held until it is passed on: then they are kept for later references
 * (item-references.ts). Packed, they pass between threads without being walked or copied one by one.
 */
import type { KeepItem } from "../../dialects/codecs.ts";

/** Most items held of one answer: as many as a later request may refer to. */
export const MOST_HELD = 1_000;

export interface HeldItem {
  readonly id: string;
  readonly json: Buffer | string;
}

export interface PackedItems {
  readonly ids: readonly string[];
  /** Where each item ends. */
  readonly ends: readonly number[];
  readonly json: Buffer;
}

/** Returns a `KeepItem` that adds to `items`. */
export const holdingIn =
  (items: HeldItem[]): KeepItem =>
  (id, json) => {
    if (items.length < MOST_HELD) items.push({ id, json });
  };

export function packItems(items: readonly HeldItem[]): PackedItems {
  const ends: number[] = [];
  let length = 0;
  for (const { json } of items) ends.push((length += Buffer.byteLength(json)));
  // Memory of its own, to be transferred.
  const bytes = Buffer.allocUnsafeSlow(length);
  let at = 0;
  for (const { json } of items) at += typeof json === "string" ? bytes.write(json, at) : json.copy(bytes, at);
  return { ids: items.map(({ id }) => id), ends, json: bytes };
}

export const unpackItems = ({ ids, ends, json }: PackedItems): HeldItem[] =>
  ids.map((id, index) => ({ id, json: json.subarray(ends[index - 1] ?? 0, ends[index]) }));
