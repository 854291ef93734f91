/** The ids that a client gives its requests: each once in a batch, in constant space for each. */
import { createHash } from "node:crypto";

/** What a message batch allows; `"a\n"` is refused (rule 4.7): without `m`, `$` is only the very end. */
export const isMessagesCustomId = (id: string): boolean => /^[A-Za-z0-9_-]{1,64}$/.test(id);

export class CustomIds {
  readonly #seen = new Set<string>();

  /** False: it was there before. */
  add(id: string): boolean {
    const before = this.#seen.size;
    this.#seen.add(id.length <= 64 ? id : digest(id));
    return this.#seen.size > before;
  }
}

/** Longer than any id that is kept as it is. Of UTF-16, so that lone surrogates differ (rule 4.12). */
const digest = (id: string) => `sha256:${createHash("sha256").update(id, "utf16le").digest("hex")}`;
