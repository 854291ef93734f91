/**
 * Parsed robots.txt files, each organization's apart: whoever found one here would learn from the time of an answer
 * who else had been at that site (rule 7.14). One organization's files never take all the room.
 */
import { LRUCache } from "lru-cache";
import type { Robots } from "./robots.ts";

const KEPT_MS = 15 * 60_000;
/** Of all organizations together; a rule is some hundred bytes. */
const MAX_KEPT = { files: 10_000, rules: 500_000 } as const;
const MAX_KEPT_OF_ONE = { files: 1_000, rules: 100_000 } as const;

interface Kept {
  readonly owner: string;
  readonly robots: Robots;
}

/** What an organization has here: its keys, the oldest first. */
interface Holding {
  readonly keys: Set<string>;
  rules: number;
}

export class RobotsCache {
  readonly #holdings = new Map<string, Holding>();
  readonly #files = new LRUCache<string, Kept>({
    max: MAX_KEPT.files,
    maxSize: MAX_KEPT.rules,
    sizeCalculation: ({ robots }) => sizeOf(robots),
    ttl: KEPT_MS,
    dispose: ({ owner, robots }, key) => {
      const holding = this.#holdings.get(owner);
      if (holding === undefined || !holding.keys.delete(key)) return;
      holding.rules -= sizeOf(robots);
      if (holding.keys.size === 0) this.#holdings.delete(owner);
    },
  });

  /** @param owner an organization's id. @param place what the file belongs to: policy, generation, origin. */
  get(owner: string, place: string): Robots | undefined {
    return this.#files.get(keyOf(owner, place))?.robots;
  }

  set(owner: string, place: string, robots: Robots): void {
    const key = keyOf(owner, place);
    this.#files.delete(key);
    const size = sizeOf(robots);
    if (size > MAX_KEPT_OF_ONE.rules) return;
    const kept = this.#holdings.get(owner);
    for (const oldest of kept?.keys ?? []) {
      const isRoom =
        kept !== undefined &&
        kept.keys.size < MAX_KEPT_OF_ONE.files &&
        kept.rules + size <= MAX_KEPT_OF_ONE.rules;
      if (isRoom) break;
      this.#files.delete(oldest);
    }
    const holding = this.#holdings.get(owner) ?? { keys: new Set(), rules: 0 };
    this.#holdings.set(owner, holding);
    holding.keys.add(key);
    holding.rules += size;
    this.#files.set(key, { owner, robots });
  }
}

/** A file without rules takes room, too. */
const sizeOf = (robots: Robots) => robots.length + 1;
const keyOf = (owner: string, place: string) => JSON.stringify([owner, place]);
