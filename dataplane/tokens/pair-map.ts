/**
 * Maps pairs of integers to integers, none below 0, in typed arrays: a million entries in some megabytes. A Map would
 * need keys made of both numbers and several times the memory.
 */
const ABSENT = -1;
/** Bits of `#present` for each slot of `#slots`. */
const BITS_OF_A_SLOT = 4;

export class PairMap {
  /** Slots of three numbers: the pair and its value. */
  readonly #slots: Int32Array;
  readonly #mask: number;
  /** A bit for each pair's hash: it fits the processor's cache, and rules out nine of ten absent pairs. */
  readonly #present: Uint8Array;
  readonly #presentMask: number;

  /** @param entries the most pairs that will be added. */
  constructor(entries: number) {
    // At most half full, so that a search ends after a step or two.
    const slots = 2 ** Math.ceil(Math.log2(2 * entries + 2));
    this.#slots = new Int32Array(3 * slots).fill(ABSENT);
    this.#mask = slots - 1;
    this.#present = new Uint8Array((slots * BITS_OF_A_SLOT) / 8);
    this.#presentMask = slots * BITS_OF_A_SLOT - 1;
  }

  /** Returns the value, or -1. */
  get(first: number, second: number): number {
    const hash = hashOf(first, second);
    const bit = hash & this.#presentMask;
    if (((this.#present[bit >>> 3] ?? 0) & (1 << (bit & 7))) === 0) return ABSENT;
    return this.#slots[this.#find(hash, first, second) + 2] ?? ABSENT;
  }

  set(first: number, second: number, value: number): void {
    const hash = hashOf(first, second);
    const bit = hash & this.#presentMask;
    this.#present[bit >>> 3] = (this.#present[bit >>> 3] ?? 0) | (1 << (bit & 7));
    const at = this.#find(hash, first, second);
    this.#slots[at] = first;
    this.#slots[at + 1] = second;
    this.#slots[at + 2] = value;
  }

  /** Returns the index of the pair, or of the free slot where it belongs. */
  #find(hash: number, first: number, second: number): number {
    const slots = this.#slots;
    const mask = this.#mask;
    for (let slot = (hash >>> 3) & mask; ; slot = (slot + 1) & mask) {
      const at = 3 * slot;
      const held = slots[at];
      if (held === ABSENT || (held === first && slots[at + 1] === second)) return at;
    }
  }
}

function hashOf(first: number, second: number): number {
  const mixed = Math.imul(first, 0x9e3779b1) ^ Math.imul(second, 0x85ebca6b);
  const hash = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d);
  return hash ^ (hash >>> 12);
}
