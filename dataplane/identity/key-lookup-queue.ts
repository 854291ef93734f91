/**
 * Looks up keys of callers who have sent too many unknown ones, or whose limits may have changed: many in one query, and few
 * queries a second, so that guessing and being refused cost Postgres little however fast they go, and a valid key among the
 * guesses is found all the same. Who asks (an address, or an organization whose limits may have changed) takes turns with the
 * others.
 */
import { ApiError } from "../lib/api-error.ts";
import { BySize } from "../lib/by-size.ts";
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
  readonly asker: Asker;
  readonly answer: PromiseWithResolvers<Principal | null>;
}

interface Asker {
  readonly name: string;
  /** How many of its keys wait. */
  size: number;
  /** Those keys in the order of asking, and by their names. */
  readonly line: Waiting[];
  readonly byName: Map<string, Waiting>;
}

export class KeyLookupQueue {
  readonly #lookUp: (names: readonly string[]) => Promise<FoundKeys>;
  /** By their names, whoever is next first. Requests of one asker for the same waiting key share its answer. */
  readonly #askers = new Map<string, Asker>();
  readonly #bySize = new BySize<Asker>();
  #length = 0;
  #working = false;

  constructor(lookUp: (names: readonly string[]) => Promise<FoundKeys>) {
    this.#lookUp = lookUp;
  }

  /** @throws ApiError 429 when too many wait; whatever the look-up throws. */
  find(name: string, askerName: string): Promise<Principal | null> {
    const known = this.#askers.get(askerName);
    const same = known?.byName.get(name);
    if (same !== undefined) return same.answer.promise;
    if (this.#length >= LONGEST_LINE && !this.#makeRoom(known?.size ?? 0))
      return Promise.reject(tooManyWait());
    const asker = known ?? { name: askerName, size: 0, line: [], byName: new Map<string, Waiting>() };
    const waiting: Waiting = { name, asker, answer: Promise.withResolvers() };
    asker.line.push(waiting);
    asker.byName.set(name, waiting);
    this.#resized(asker);
    if (!this.#working) this.#work().catch((error: unknown) => this.#giveUp(error));
    return waiting.answer.promise;
  }

  /** Turns away the last key of whoever asks for the most, unless a newcomer who has `own` would have as many: false. */
  #makeRoom(own: number): boolean {
    const { largest } = this.#bySize;
    if (largest === undefined || largest.size <= own + 1) return false;
    const last = largest.line.pop();
    if (last === undefined) return false;
    largest.byName.delete(last.name);
    this.#resized(largest);
    last.answer.reject(tooManyWait());
    return true;
  }

  /** Takes note that keys of an asker have come or gone. */
  #resized(asker: Asker): void {
    const { name, size, line } = asker;
    this.#length += line.length - size;
    this.#bySize.resize(asker, line.length);
    if (line.length === 0) this.#askers.delete(name);
    else if (size === 0) this.#askers.set(name, asker);
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
    let turns = Array.from(this.#askers.values(), ({ line }) => line.values());
    while (turns.length > 0) {
      turns = turns.filter((turn) => {
        const waiting = group.length < KEYS_AT_ONCE ? turn.next().value : undefined;
        if (waiting !== undefined) group.push(waiting);
        return waiting !== undefined;
      });
    }
    for (const { name, asker } of group) asker.byName.delete(name);
    for (const asker of new Set(group.map((waiting) => waiting.asker))) {
      asker.line.splice(0, asker.line.length - asker.byName.size);
      this.#resized(asker);
      // Whoever had a turn is behind those who had none.
      if (this.#askers.delete(asker.name)) this.#askers.set(asker.name, asker);
    }
    return group;
  }

  /** Fails all waiting callers, as no answer will come. */
  #giveUp(error: unknown): void {
    this.#working = false;
    for (const asker of this.#askers.values()) {
      for (const { answer } of asker.line.splice(0)) answer.reject(error);
      asker.byName.clear();
      this.#resized(asker);
    }
  }
}

const tooManyWait = () =>
  new ApiError("rate_limited", "Too many API keys are being checked. Try again in a moment.", {
    retryAfterSeconds: 1,
  });
