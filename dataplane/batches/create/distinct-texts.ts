/** Texts that may occur once each: the `custom_id`s of a batch, the keys of its body. */
import { createHash } from "node:crypto";

/** A text takes constant space however long it is. */
export class DistinctTexts {
  readonly #seen = new Set<string>();

  get size(): number {
    return this.#seen.size;
  }

  /** Adds a text. False: it was there before. */
  add(text: string): boolean {
    const before = this.#seen.size;
    this.#seen.add(text.length <= 64 ? text : digest(text));
    return this.#seen.size > before;
  }
}

/** Longer than any text that is kept as it is, so that no two collide. Hashes UTF-16, so that lone surrogates differ (rule 4.12). */
const digest = (text: string) => `sha256:${createHash("sha256").update(text, "utf16le").digest("hex")}`;
