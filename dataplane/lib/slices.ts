import { setImmediate as nextTurn } from "node:timers/promises";

/** Cuts long work into slices, so that everything else in this process gets its turn in between. */
export class Slices {
  readonly #sliceMs: number;
  #endsAt: number;

  constructor(sliceMs: number) {
    this.#sliceMs = sliceMs;
    this.#endsAt = performance.now() + sliceMs;
  }

  /** Whether the present slice is used up; then `pause` is due. */
  get usedUp(): boolean {
    return performance.now() >= this.#endsAt;
  }

  /** Lets others work, and begins the next slice. */
  async pause(): Promise<void> {
    await nextTurn();
    this.#endsAt = performance.now() + this.#sliceMs;
  }
}
