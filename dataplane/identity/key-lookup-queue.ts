/**
 * Looks up keys of callers who have sent too many unknown ones, or whose limits may have changed: many in one query, and few
 * queries a second, so that guessing and being refused cost Postgres little however fast they go, and a valid key among the
 * guesses is found all the same.
 */
import { ApiError } from "../lib/api-error.ts";
import type { Principal } from "./principal.ts";

/** Time between the beginnings of two queries. */
const PAUSE_MS = 50;
const KEYS_AT_ONCE = 500;
/** Most keys that wait: as many as a new process may meet at once, and none waits longer than half a second. */
const LONGEST_LINE = 5_000;

/** Principals of the valid keys, by what they are looked up by: their SHA-256, or their ids. */
export type FoundKeys = ReadonlyMap<string, Principal>;

export class KeyLookupQueue {
  readonly #lookUp: (names: readonly string[]) => Promise<FoundKeys>;
  /** In the order of asking. Callers who ask for the same waiting key share its answer. */
  readonly #waiting = new Map<string, PromiseWithResolvers<Principal | null>>();
  #working = false;

  constructor(lookUp: (names: readonly string[]) => Promise<FoundKeys>) {
    this.#lookUp = lookUp;
  }

  /** @throws ApiError 429 when the line is too long; whatever the look-up throws. */
  find(name: string): Promise<Principal | null> {
    const same = this.#waiting.get(name);
    if (same !== undefined) return same.promise;
    if (this.#waiting.size >= LONGEST_LINE) {
      return Promise.reject(
        new ApiError("rate_limited", "Too many API keys are being checked. Try again in a moment.", {
          retryAfterSeconds: 1,
        }),
      );
    }
    const waiting = Promise.withResolvers<Principal | null>();
    this.#waiting.set(name, waiting);
    if (!this.#working) this.#work().catch((error: unknown) => this.#giveUp(error));
    return waiting.promise;
  }

  async #work(): Promise<void> {
    this.#working = true;
    while (this.#waiting.size > 0) {
      const pause = new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      const group = [...this.#waiting.entries()].slice(0, KEYS_AT_ONCE);
      // Before the query: a key that is made now is not in its answer.
      for (const [name] of group) this.#waiting.delete(name);
      try {
        const found = await this.#lookUp(group.map(([name]) => name));
        for (const [name, { resolve }] of group) resolve(found.get(name) ?? null);
      } catch (error) {
        for (const [, { reject }] of group) reject(error);
      }
      await pause;
    }
    this.#working = false;
  }

  /** Fails all waiting callers, as no answer will come. */
  #giveUp(error: unknown): void {
    this.#working = false;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
