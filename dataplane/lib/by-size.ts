/** Knows which of many owners has the most without looking at all of them: it is asked whenever something is full. */
export interface Sized {
  /** How much it has; `BySize.resize` alone changes it. */
  size: number;
}

export class BySize<Owner extends Sized> {
  /** Owners that have something, by how much. */
  readonly #owners = new Map<number, Set<Owner>>();
  #most = 0;

  /** Of those with the most, the one that has had as much for longest; undefined: nobody has anything. */
  get largest(): Owner | undefined {
    const [largest] = this.#owners.get(this.#most) ?? [];
    return largest;
  }

  /** Gives an owner another size, in time that grows with the difference. */
  resize(owner: Owner, size: number): void {
    // In steps of one, so that the most is never to be looked for further than one below the last.
    while (owner.size !== size) this.#step(owner, owner.size + Math.sign(size - owner.size));
  }

  #step(owner: Owner, size: number): void {
    const peers = this.#owners.get(owner.size);
    peers?.delete(owner);
    if (peers?.size === 0) this.#owners.delete(owner.size);
    owner.size = size;
    if (size > 0) {
      const others = this.#owners.get(size);
      if (others === undefined) this.#owners.set(size, new Set([owner]));
      else others.add(owner);
    }
    if (size > this.#most || !this.#owners.has(this.#most)) this.#most = size;
  }
}
