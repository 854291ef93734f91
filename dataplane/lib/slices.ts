import { setImmediate as nextTurn } from "node:timers/promises";

/** Longest time that one answer is worked on before others have a turn; the largest answers take some hundred milliseconds in all. */
export const ANSWER_SLICE_MS = 5;
/** Length of the runs that are sorted at once, in a millisecond or two. */
const SORTED_AT_ONCE = 1_024;

/** Cuts long work into slices, so that other work of this process runs in between. */
export class Slices {
  readonly #sliceMs: number;
  #endsAt: number;

  constructor(sliceMs: number) {
    this.#sliceMs = sliceMs;
    this.#endsAt = performance.now() + sliceMs;
  }

  /** Whether the current slice is used up; then `pause` is due. */
  get usedUp(): boolean {
    return performance.now() >= this.#endsAt;
  }

  /** Lets others work, and begins the next slice. */
  async pause(): Promise<void> {
    await nextTurn();
    this.#endsAt = performance.now() + this.#sliceMs;
  }

  /** As `list.map(each)`. */
  async map<From, To>(list: Iterable<From>, each: (one: From) => To): Promise<To[]> {
    const made: To[] = [];
    for (const one of list) {
      if (this.usedUp) await this.pause();
      made.push(each(one));
    }
    return made;
  }

  /** As `list.toSorted(compare)`: short runs are sorted, and merged two by two. */
  async sorted<One extends object | number | string>(
    list: readonly One[],
    compare: (one: One, other: One) => number,
  ): Promise<One[]> {
    let runs: One[] = [];
    for (let at = 0; at < list.length; at += SORTED_AT_ONCE) {
      if (this.usedUp) await this.pause();
      runs.push(...list.slice(at, at + SORTED_AT_ONCE).sort(compare));
    }
    for (let length = SORTED_AT_ONCE; length < runs.length; length *= 2) {
      const merged: One[] = [];
      for (let at = 0; at < runs.length; at += 2 * length)
        await this.#merge(
          runs.slice(at, at + length),
          runs.slice(at + length, at + 2 * length),
          compare,
          merged,
        );
      runs = merged;
    }
    return runs;
  }

  /** Appends the merge of two sorted lists to `merged`; stable. */
  async #merge<One extends object | number | string>(
    first: readonly One[],
    second: readonly One[],
    compare: (one: One, other: One) => number,
    merged: One[],
  ): Promise<void> {
    let at = 0;
    for (const one of first) {
      for (let other = second[at]; other !== undefined && compare(other, one) < 0; other = second[at]) {
        if (this.usedUp) await this.pause();
        merged.push(other);
        at += 1;
      }
      if (this.usedUp) await this.pause();
      merged.push(one);
    }
    for (const other of second.slice(at)) merged.push(other);
  }
}
