/**
 * A cache that several owners share. When it is full, the owner that has most in it gives up what of theirs was not used
 * for longest: so one owner's many push out nothing of those who have few, and one alone may fill it.
 */
interface Entry<Value> {
  readonly key: string;
  value: Value;
  readonly owner: Owner<Value>;
  /** Neighbours among the owner's, by last use. */
  older: Entry<Value> | null;
  newer: Entry<Value> | null;
}

interface Owner<Value> {
  readonly name: string;
  size: number;
  oldest: Entry<Value> | null;
  newest: Entry<Value> | null;
}

export class SharedCache<Value> {
  readonly #max: number;
  readonly #entries = new Map<string, Entry<Value>>();
  readonly #owners = new Map<string, Owner<Value>>();
  /** Owners by how many entries they have, and the greatest such number. */
  readonly #bySize = new Map<number, Set<Owner<Value>>>();
  #most = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#entries.size;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /** Counts as a use. */
  get(key: string): Value | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.newer !== null) {
      unlink(entry);
      append(entry);
    }
    return entry.value;
  }

  set(ownerName: string, key: string, value: Value): void {
    const known = this.#entries.get(key);
    if (known?.owner.name === ownerName) {
      known.value = value;
      this.get(key);
      return;
    }
    this.delete(key);
    if (this.#entries.size >= this.#max) this.#makeRoom();
    const owner = this.#owners.get(ownerName) ?? { name: ownerName, size: 0, oldest: null, newest: null };
    const entry: Entry<Value> = { key, value, owner, older: null, newer: null };
    this.#entries.set(key, entry);
    append(entry);
    this.#resize(owner, owner.size + 1);
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    unlink(entry);
    this.#resize(entry.owner, entry.owner.size - 1);
  }

  #makeRoom(): void {
    const [largest] = this.#bySize.get(this.#most) ?? [];
    if (largest?.oldest) this.delete(largest.oldest.key);
  }

  #resize(owner: Owner<Value>, size: number): void {
    const peers = this.#bySize.get(owner.size);
    peers?.delete(owner);
    if (peers?.size === 0) this.#bySize.delete(owner.size);
    owner.size = size;
    if (size === 0) this.#owners.delete(owner.name);
    else {
      this.#owners.set(owner.name, owner);
      const others = this.#bySize.get(size);
      if (others === undefined) this.#bySize.set(size, new Set([owner]));
      else others.add(owner);
    }
    // Sizes change by one at a time.
    if (size > this.#most) this.#most = size;
    else if (!this.#bySize.has(this.#most)) this.#most = size;
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
