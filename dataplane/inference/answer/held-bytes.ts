import type { BodyLease } from "../call.ts";

/** A character of a text takes one byte or two, and in small pieces more. */
export const CHARACTER_BYTES = 2;
/** What a stream holds beyond this is counted. */
const UNCOUNTED_BYTES = 256 * 1024;

/**
 * Counts among the bytes of bodies (rule 7.2) what one stream holds: unfinished events, events that cannot be passed on yet, and
 * text that is kept until its end.
 */
export class HeldBytes {
  readonly #lease: Pick<BodyLease, "receive" | "giveBack">;
  #counted = 0;

  constructor(lease: Pick<BodyLease, "receive" | "giveBack">) {
    this.#lease = lease;
  }

  /** Sets how much is held; few streams hold enough to be counted. @throws ApiError 429 or 503 without room for more */
  hold(bytes: number): void {
    if (bytes <= UNCOUNTED_BYTES) return this.release();
    const more = bytes - this.#counted;
    if (more > 0) this.#counted += this.#lease.receive(more);
    else this.#giveBack(-more);
  }

  /** Nothing is held any more. */
  release(): void {
    if (this.#counted > 0) this.#giveBack(this.#counted);
  }

  #giveBack(bytes: number): void {
    this.#lease.giveBack(bytes);
    this.#counted -= bytes;
  }
}
