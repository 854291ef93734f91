/**
 * Charges that Redis took, kept to be made again when Redis loses them (design.md §5): each until the ledger has it, and for at
 * least a minute, as the ledger may lose its last transactions as well. Their bytes lie outside of V8's heap: as strings they
 * would survive two young collections, and be copied by each.
 */
import type { MeterOperation } from "./shard.ts";
import { BEFORE_ALL, isUpTo, type StreamPosition } from "./stream-position.ts";

/** Charges are kept for so long, also when the ledger has them. */
const KEPT_MS = 60_000;
/** Charges within so long share a chunk, and are forgotten together. */
const CHUNK_MS = 5_000;
const CHUNK_BYTES = 64 * 1024;
/** Bytes of charges on their way to the ledger, of all shards: some 400,000. Beyond it nothing new is admitted. */
const MOST_BYTES = 128 * 1024 * 1024;

/** Between operations: none holds a control character but zero. */
const SEPARATOR = "\x1e";

interface Chunk {
  readonly since: number;
  /** `performance.now()` of its last charge. */
  last: number;
  /** No charge of the chunk comes after this entry. */
  position: StreamPosition;
  /** The ledger has all charges of the chunk. */
  drained: boolean;
  /** The ledger may have lost some since: the chunk is kept until that was looked up. */
  doubtful: boolean;
  readonly bytes: Buffer;
  used: number;
}

function operationsOf({ bytes, used }: Chunk): MeterOperation[] {
  const charges = bytes.toString("utf8", 0, used).split(SEPARATOR) as MeterOperation[];
  return charges.slice(0, -1);
}

/** The space that all shards of a process share. */
export class KeptSpace {
  readonly keptMs: number;
  readonly #most: number;
  /** Bytes of all chunks, and of those that the ledger has not. */
  all = 0;
  waiting = 0;

  constructor({
    keptMs = KEPT_MS,
    most = MOST_BYTES,
  }: { readonly keptMs?: number; readonly most?: number } = {}) {
    this.keptMs = keptMs;
    this.#most = most;
  }

  /** Whether no further charge could be kept: the ledger has been out of reach for too long. */
  get full(): boolean {
    return this.waiting >= this.#most;
  }

  get crowded(): boolean {
    return this.all >= this.#most;
  }
}

/** The kept charges of one shard. Times are `performance.now()`. */
export class KeptCharges {
  readonly #space: KeptSpace;
  #chunks: Chunk[] = [];
  #drained: StreamPosition = BEFORE_ALL;

  constructor(space = new KeptSpace()) {
    this.#space = space;
  }

  /** `position`: the charge is at this entry of the stream, or before it. */
  add(charge: MeterOperation, now: number, position: StreamPosition): void {
    let chunk = this.#chunks.at(-1);
    const most = 3 * charge.length + 1;
    // A chunk that waits for the ledger is filled however old it is: a long wait would leave many nearly empty ones.
    const old = chunk !== undefined && chunk.drained && chunk.since < now - CHUNK_MS;
    if (chunk === undefined || old || chunk.doubtful || chunk.used + most > chunk.bytes.length) {
      this.#forget(now);
      const bytes = Buffer.allocUnsafeSlow(Math.max(CHUNK_BYTES, most));
      chunk = { since: now, last: now, position, drained: true, doubtful: false, bytes, used: 0 };
      this.#space.all += bytes.length;
      this.#chunks.push(chunk);
    }
    chunk.used += chunk.bytes.write(charge, chunk.used);
    chunk.bytes[chunk.used++] = SEPARATOR.charCodeAt(0);
    chunk.last = now;
    // Nothing changes: all charges of a call have one position. A new chunk says `drained` until it is judged.
    if (chunk.position === position && !chunk.drained) return;
    if (isUpTo(chunk.position, position)) chunk.position = position;
    this.#judge(chunk);
  }

  /** Whether some of them are not in the ledger yet. */
  get waiting(): boolean {
    return this.#chunks.some(({ drained }) => !drained);
  }

  /** The ledger has all entries of the stream up to this one. */
  drainedTo(position: StreamPosition): void {
    if (isUpTo(position, this.#drained)) return;
    this.#drained = position;
    for (const chunk of this.#chunks) this.#judge(chunk);
  }

  /** All charges were made again, in a stream that may be another one; none comes after this entry. */
  chargedAgain(position: StreamPosition): void {
    this.#drained = BEFORE_ALL;
    for (const chunk of this.#chunks) {
      chunk.position = position;
      this.#judge(chunk);
    }
  }

  /** The ledger may have lost its last transactions: every charge becomes doubtful. */
  doubt(): void {
    for (const chunk of this.#chunks) chunk.doubtful = true;
  }

  /** Whether the ledger may have lost some of them. */
  get doubtful(): boolean {
    return this.#chunks.some(({ doubtful }) => doubtful);
  }

  /** Returns doubtful charges that the ledger had, and ends their doubt. */
  takeDoubtful(): MeterOperation[] {
    const chunks = this.#chunks.filter(({ doubtful, drained }) => doubtful && drained);
    for (const chunk of chunks) chunk.doubtful = false;
    return chunks.flatMap(operationsOf);
  }

  /** The charges, oldest first; a few of them may have been in the ledger for more than a minute. */
  all(now: number): MeterOperation[] {
    this.#forget(now);
    return this.#chunks.flatMap(operationsOf);
  }

  #judge(chunk: Chunk): void {
    const drained = isUpTo(chunk.position, this.#drained);
    if (drained === chunk.drained) return;
    chunk.drained = drained;
    this.#space.waiting += drained ? -chunk.bytes.length : chunk.bytes.length;
  }

  #forget(now: number): void {
    const { keptMs, crowded } = this.#space;
    const forgotten = (chunk: Chunk) =>
      chunk.drained && !chunk.doubtful && (crowded || chunk.last <= now - keptMs);
    for (const chunk of this.#chunks) if (forgotten(chunk)) this.#space.all -= chunk.bytes.length;
    this.#chunks = this.#chunks.filter((chunk) => !forgotten(chunk));
  }
}

/** The kept charges of all shards of a process, by index. */
export class KeptByShard {
  readonly #space: KeptSpace;
  readonly #shards: readonly KeptCharges[];

  constructor(shards: number, bounds: ConstructorParameters<typeof KeptSpace>[0] = {}) {
    this.#space = new KeptSpace(bounds);
    this.#shards = Array.from({ length: shards }, () => new KeptCharges(this.#space));
  }

  of(shard: number): KeptCharges {
    const kept = this.#shards[shard];
    if (kept === undefined) throw new RangeError("no such shard");
    return kept;
  }

  /** Whether so much waits for the ledger that nothing new may be admitted. */
  get full(): boolean {
    return this.#space.full;
  }

  /** Bytes of charges that the ledger has not. */
  get waitingBytes(): number {
    return this.#space.waiting;
  }

  /** As of each shard. */
  doubt(): void {
    for (const shard of this.#shards) shard.doubt();
  }

  /** As of each shard. */
  get doubtful(): boolean {
    return this.#shards.some(({ doubtful }) => doubtful);
  }

  takeDoubtful(): MeterOperation[] {
    return this.#shards.flatMap((shard) => shard.takeDoubtful());
  }
}
