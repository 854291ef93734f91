/**
 * Parsed robots.txt files, separate for each organization: a shared entry would show by the time of an answer that
 * somebody else had visited the site (rule 7.14). One organization's files never take all the room.
 */
import { LRUCache } from "lru-cache";
import type { Robots } from "./robots.ts";

const KEPT_MS = 15 * 60_000;
/** Limits of all organizations together; a rule is some hundred bytes. */
const MAX_KEPT = { files: 10_000, rules: 500_000 } as const;
const MAX_KEPT_OF_ONE = { files: 1_000, rules: 100_000 } as const;

interface Kept {
  readonly owner: string;
  readonly robots: Robots;
}

/** An organization's entries: its keys, the oldest first, and the number of their rules. */
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

  /** @param owner an organization's id. @param place key of the file: policy, generation, origin. */
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
