/** The `custom_id`s of a batch: each occurs once, and takes constant space. */
import { createHash } from "node:crypto";

/** Whether a message batch allows the id. `"a\n"` is refused (rule 4.7): without `m`, `$` matches only the very end. */
export const isMessagesCustomId = (id: string): boolean => /^[A-Za-z0-9_-]{1,64}$/.test(id);

export class CustomIds {
  readonly #seen = new Set<string>();

  /** Adds an id. False: an earlier request has it. */
  add(id: string): boolean {
    const before = this.#seen.size;
    this.#seen.add(id.length <= 64 ? id : digest(id));
    return this.#seen.size > before;
  }
}

/** Longer than any id that is kept as it is, so that no two collide. Hashes UTF-16, so that lone surrogates differ (rule 4.12). */
const digest = (id: string) => `sha256:${createHash("sha256").update(id, "utf16le").digest("hex")}`;
