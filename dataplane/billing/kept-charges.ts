/**
 * The charges of the last minute, to make again when Redis loses them (design.md §5). Their bytes lie outside of the
 * heap: as strings they would outlive two collections of the young one, each of them copying all.
 */
import type { Operation } from "./shard.ts";

/** Charges are made again for so long. */
const KEPT_MS = 60_000;
/** Charges of a chunk are given up together; Redis knows for 75 s that a request was charged (meter-requests.lua). */
const CHUNK_MS = 5_000;
const CHUNK_BYTES = 64 * 1024;
/** Some ten thousand charges. */
const MOST_CHUNKS = 128;

/** No operation holds a control character but zero. */
const SEPARATOR = "\x1e";

interface Chunk {
  /** `performance.now()` of its first charge. */
  readonly since: number;
  readonly bytes: Buffer;
  used: number;
}

/** Those of one shard. Times are `performance.now()`. */
export class KeptCharges {
  #chunks: Chunk[] = [];

  add(charge: Operation, now: number): void {
    let chunk = this.#chunks.at(-1);
    const most = 3 * charge.length + 1;
    if (chunk === undefined || chunk.used + most > chunk.bytes.length || chunk.since < now - CHUNK_MS) {
      chunk = { since: now, bytes: Buffer.allocUnsafeSlow(Math.max(CHUNK_BYTES, most)), used: 0 };
      this.#chunks = this.#young(now).slice(1 - MOST_CHUNKS);
      this.#chunks.push(chunk);
    }
    chunk.used += chunk.bytes.write(charge, chunk.used);
    chunk.bytes[chunk.used++] = SEPARATOR.charCodeAt(0);
  }

  /** Oldest first; a few of them may be older than a minute. */
  all(now: number): Operation[] {
    return this.#young(now).flatMap(({ bytes, used }) => {
      const charges = bytes.toString("utf8", 0, used).split(SEPARATOR) as Operation[];
      return charges.slice(0, -1);
    });
  }

  #young(now: number): Chunk[] {
    return this.#chunks.filter(({ since }) => since > now - KEPT_MS - CHUNK_MS);
  }
}
