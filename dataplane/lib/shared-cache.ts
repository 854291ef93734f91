/**
 * An LRU cache shared by several owners. When it is full, the owner with the greatest weight loses its least recently used
 * entry: an owner of many entries cannot evict those of others, and a single owner may fill the cache, or the part of it that
 * one may have. Large entries may have a greater weight.
 */
import { BySize } from "./by-size.ts";

interface Entry<Value> {
  readonly key: string;
  value: Value;
  readonly owner: Owner<Value>;
  readonly weight: number;
  /** Neighbours in the owner's list, by last use. */
  older: Entry<Value> | null;
  newer: Entry<Value> | null;
}

interface Owner<Value> {
  readonly name: string;
  /** Total weight of the owner's entries. */
  size: number;
  oldest: Entry<Value> | null;
  newest: Entry<Value> | null;
}

export interface SharedCacheOptions<Value> {
  /** Total weight of one owner's entries; absent: that of all. */
  readonly maxOfOne?: number;
  /** Is told each entry that had to make room, after it is gone. */
  readonly evicted?: (key: string, value: Value) => void;
}

export class SharedCache<Value> {
  readonly #max: number;
  readonly #maxOfOne: number;
  readonly #evicted: (key: string, value: Value) => void;
  #weight = 0;
  readonly #entries = new Map<string, Entry<Value>>();
  readonly #owners = new Map<string, Owner<Value>>();
  /** Owners by total weight. */
  readonly #bySize = new BySize<Owner<Value>>();

  /** @param max total weight of all entries. */
  constructor(max: number, { maxOfOne = max, evicted = () => {} }: SharedCacheOptions<Value> = {}) {
    this.#max = max;
    this.#maxOfOne = maxOfOne;
    this.#evicted = evicted;
  }

  /** How many entries it has. */
  get size(): number {
    return this.#entries.size;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  keys(): IterableIterator<string> {
    return this.#entries.keys();
  }

  *values(): Generator<Value> {
    for (const { value } of this.#entries.values()) yield value;
  }

  /** Returns a value as if nobody had used it. */
  peek(key: string): Value | undefined {
    return this.#entries.get(key)?.value;
  }

  /** Returns a value and marks it as used. */
  get(key: string): Value | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.newer !== null) {
      unlink(entry);
      append(entry);
    }
    return entry.value;
  }

  /** @param weight an integer from 1; a value heavier than one owner's entries may be is kept as if it weighed as much. */
  set(ownerName: string, key: string, value: Value, weight = 1): void {
    const known = this.#entries.get(key);
    if (known?.owner.name === ownerName && known.weight === weight) {
      known.value = value;
      this.get(key);
      return;
    }
    this.delete(key);
    const taken = Math.min(weight, this.#maxOfOne);
    let own = this.#owners.get(ownerName);
    while (own !== undefined && own.size + taken > this.#maxOfOne) {
      this.#evictOldest(own);
      own = this.#owners.get(ownerName);
    }
    while (this.#weight + taken > this.#max) this.#makeRoom();
    const owner = this.#owners.get(ownerName) ?? { name: ownerName, size: 0, oldest: null, newest: null };
    const entry: Entry<Value> = { key, value, owner, weight: taken, older: null, newer: null };
    this.#entries.set(key, entry);
    append(entry);
    this.#weigh(owner, taken);
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    unlink(entry);
    this.#weigh(entry.owner, -entry.weight);
  }

  #makeRoom(): void {
    const { largest } = this.#bySize;
    if (largest !== undefined) this.#evictOldest(largest);
  }

  #evictOldest({ oldest }: Owner<Value>): void {
    if (oldest === null) return;
    this.delete(oldest.key);
    this.#evicted(oldest.key, oldest.value);
  }

  #weigh(owner: Owner<Value>, more: number): void {
    this.#weight += more;
    this.#bySize.resize(owner, owner.size + more);
    if (owner.size === 0) this.#owners.delete(owner.name);
    else this.#owners.set(owner.name, owner);
  }
}

function append<Value>(entry: Entry<Value>): void {
  const { owner } = entry;
  entry.older = owner.newest;
  if (owner.newest === null) owner.oldest = entry;
  else owner.newest.newer = entry;
  owner.newest = entry;
}

function unlink<Value>(entry: Entry<Value>): void {
  const { owner, older, newer } = entry;
  if (older === null) owner.oldest = newer;
  else older.newer = newer;
  if (newer === null) owner.newest = older;
  else newer.older = older;
  entry.older = null;
  entry.newer = null;
}
