/**
 * A map of texts packed into three arrays, which are transferred between threads without a copy: cloning a map of a hundred
 * thousand strings would block the receiving thread. A key is stored as the first 16 bytes of its SHA-256.
 */
import { createHash } from "node:crypto";

const HASH_BYTES = 16;

export interface Packed {
  /** Hashes of the keys, sorted. */
  readonly hashes: Uint8Array<ArrayBuffer>;
  /** Where each value begins, and where the last one ends. */
  readonly offsets: Uint32Array<ArrayBuffer>;
  readonly values: Uint8Array<ArrayBuffer>;
}

const hashOf = (key: string): Buffer => createHash("sha256").update(key).digest().subarray(0, HASH_BYTES);

/** Packs entries; of several with one key the first counts. */
export function pack(entries: Iterable<readonly [key: string, value: string]>): Packed {
  const values = new Map<string, string>();
  for (const [key, value] of entries) if (!values.has(key)) values.set(key, value);
  const sorted = Array.from(values, ([key, value]) => ({ hash: hashOf(key), value: Buffer.from(value) }));
  sorted.sort((one, other) => one.hash.compare(other.hash));
  const hashes = new Uint8Array(sorted.length * HASH_BYTES);
  const offsets = new Uint32Array(sorted.length + 1);
  const whole = new Uint8Array(sorted.reduce((sum, { value }) => sum + value.length, 0));
  let at = 0;
  for (const [index, { hash, value }] of sorted.entries()) {
    hashes.set(hash, index * HASH_BYTES);
    offsets[index] = at;
    whole.set(value, at);
    at += value.length;
  }
  offsets[sorted.length] = at;
  return { hashes, offsets, values: whole };
}

export const packedSize = ({ offsets }: Packed): number => offsets.length - 1;

/** The value of a key; undefined when there is none. */
export function packedValue({ hashes, offsets, values }: Packed, key: string): string | undefined {
  const wanted = hashOf(key);
  const all = Buffer.from(hashes.buffer, hashes.byteOffset, hashes.length);
  let low = 0;
  let high = offsets.length - 2;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const order = all.compare(wanted, 0, HASH_BYTES, middle * HASH_BYTES, (middle + 1) * HASH_BYTES);
    if (order === 0) {
      const bytes = Buffer.from(values.buffer, values.byteOffset, values.length);
      return bytes.toString("utf8", offsets[middle], offsets[middle + 1]);
    }
    if (order < 0) low = middle + 1;
    else high = middle - 1;
  }
  return undefined;
}

/** The buffers of a packed map, for the transfer list of a message. */
export const packedBuffers = ({ hashes, offsets, values }: Packed): ArrayBuffer[] => [
  hashes.buffer,
  offsets.buffer,
  values.buffer,
];
