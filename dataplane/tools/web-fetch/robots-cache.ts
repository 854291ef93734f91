/**
 * Parsed robots.txt files, separate for each organization: a shared entry would show by the time of an answer that
 * somebody else had visited the site (rule 7.14). One organization's files never take all the room, nor those of several
 * that of another.
 */
import { SharedCache } from "../../lib/shared-cache.ts";
import type { Robots } from "./robots.ts";

const KEPT_MS = 15 * 60_000;
/** So many rules weigh as much as a file without any; a rule is some hundred bytes. */
const RULES_OF_UNIT = 50;
/** Weights: 500,000 rules of all organizations together, 100,000 of one. */
const MOST_UNITS = 10_000;
const MOST_UNITS_OF_ONE = 2_000;

interface Kept {
  readonly robots: Robots;
  /** Monotonic milliseconds. */
  readonly until: number;
}

export class RobotsCache {
  readonly #files = new SharedCache<Kept>(MOST_UNITS, { maxOfOne: MOST_UNITS_OF_ONE });

  /** @param owner an organization's id. @param place key of the file: policy, generation, origin. */
  get(owner: string, place: string): Robots | undefined {
    const key = keyOf(owner, place);
    const kept = this.#files.get(key);
    if (kept === undefined || performance.now() < kept.until) return kept?.robots;
    this.#files.delete(key);
    return undefined;
  }

  set(owner: string, place: string, robots: Robots): void {
    const key = keyOf(owner, place);
    const weight = 1 + Math.floor(robots.length / RULES_OF_UNIT);
    if (weight > MOST_UNITS_OF_ONE) this.#files.delete(key);
    else this.#files.set(owner, key, { robots, until: performance.now() + KEPT_MS }, weight);
  }
}

const keyOf = (owner: string, place: string) => JSON.stringify([owner, place]);
