/**
 * Looks up keys of callers who have sent too many unknown ones, or whose limits may have changed: many in one query, and few
 * queries a second, so that guessing and being refused cost Postgres little however fast they go, and a valid key among the
 * guesses is found all the same. Who asks (an address, or an organization whose limits may have changed) takes turns with the
 * others.
 */
import { ApiError } from "../lib/api-error.ts";
import type { Principal } from "./principal.ts";

/** Time between the beginnings of two queries. */
const PAUSE_MS = 50;
const KEYS_AT_ONCE = 500;
/**
 * Most keys that wait: as many as a new process may meet at once, and none waits longer than half a second. Of more, the last one
 * of whoever asks for the most makes room for who asks for few.
 */
const LONGEST_LINE = 5_000;

/** Principals of the valid keys, by what they are looked up by: their SHA-256, or their ids. */
export type FoundKeys = ReadonlyMap<string, Principal>;

interface Waiting {
  readonly name: string;
  readonly asker: string;
  readonly answer: PromiseWithResolvers<Principal | null>;
}

export class KeyLookupQueue {
  readonly #lookUp: (names: readonly string[]) => Promise<FoundKeys>;
  /** By who asks, whoever is next first: keys in the order of asking. Requests for the same waiting key share its answer. */
  readonly #askers = new Map<string, Map<string, Waiting>>();
  #length = 0;
  #working = false;

  constructor(lookUp: (names: readonly string[]) => Promise<FoundKeys>) {
    this.#lookUp = lookUp;
  }

  /** @throws ApiError 429 when too many wait; whatever the look-up throws. */
  find(name: string, asker: string): Promise<Principal | null> {
    const own = this.#askers.get(asker) ?? new Map<string, Waiting>();
    const same = own.get(name);
    if (same !== undefined) return same.answer.promise;
    if (this.#length >= LONGEST_LINE && !this.#makeRoom(own.size)) return Promise.reject(tooManyWait());
    const waiting: Waiting = { name, asker, answer: Promise.withResolvers() };
    own.set(name, waiting);
    this.#askers.set(asker, own);
    this.#length += 1;
    if (!this.#working) this.#work().catch((error: unknown) => this.#giveUp(error));
    return waiting.answer.promise;
  }

  /** Turns away the last key of whoever asks for the most, unless a newcomer who has `own` would have as many: false. */
  #makeRoom(own: number): boolean {
    let most: ReadonlyMap<string, Waiting> = new Map();
    for (const keys of this.#askers.values()) if (keys.size > most.size) most = keys;
    const last = [...most.values()].at(-1);
    if (last === undefined || most.size <= own + 1) return false;
    this.#remove(last);
    last.answer.reject(tooManyWait());
    return true;
  }

  #remove({ name, asker }: Waiting): void {
    const own = this.#askers.get(asker);
    if (own?.delete(name) !== true) return;
    this.#length -= 1;
    if (own.size === 0) this.#askers.delete(asker);
  }

  async #work(): Promise<void> {
    this.#working = true;
    while (this.#length > 0) {
      const pause = new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      // They leave before the query: a key that is made now is not in its answer.
      const group = this.#nextGroup();
      try {
        const found = await this.#lookUp([...new Set(group.map(({ name }) => name))]);
        for (const { name, answer } of group) answer.resolve(found.get(name) ?? null);
      } catch (error) {
        for (const { answer } of group) answer.reject(error);
      }
      await pause;
    }
    this.#working = false;
  }

  /** Takes the keys of one query: one of each asker in turn, then their second ones, and so on. */
  #nextGroup(): readonly Waiting[] {
    const group: Waiting[] = [];
    let turns = Array.from(this.#askers.values(), (keys) => keys.values());
    while (turns.length > 0) {
      turns = turns.filter((turn) => {
        const waiting = group.length < KEYS_AT_ONCE ? turn.next().value : undefined;
        if (waiting !== undefined) group.push(waiting);
        return waiting !== undefined;
      });
    }
    for (const waiting of group) this.#remove(waiting);
    // Whoever had a turn is behind those who had none.
    for (const asker of new Set(group.map((waiting) => waiting.asker))) {
      const rest = this.#askers.get(asker);
      if (rest === undefined) continue;
      this.#askers.delete(asker);
      this.#askers.set(asker, rest);
    }
    return group;
  }

  /** Fails all waiting callers, as no answer will come. */
  #giveUp(error: unknown): void {
    this.#working = false;
    for (const keys of this.#askers.values()) for (const { answer } of keys.values()) answer.reject(error);
    this.#askers.clear();
    this.#length = 0;
  }
}

const tooManyWait = () =>
  new ApiError("rate_limited", "Too many API keys are being checked. Try again in a moment.", {
    retryAfterSeconds: 1,
  });
