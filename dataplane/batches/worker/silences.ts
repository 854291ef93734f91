/** Who answers no more, and how many items may ask there nevertheless. Pure but for what it remembers. */
import { LRUCache } from "lru-cache";

/** So many runs in a row that nobody answered, and none between them that went well, say that nobody is there. */
const UNANSWERED_IN_A_ROW = 5;
/** How long nothing begins then at first, twice as long each time, and at most: so soon it is known that somebody is back. */
const REST_MS = { first: 1_000, most: 10_000 } as const;
const MOST_REMEMBERED = 10_000;

interface Silence {
  /** Of those that began since it was noticed; infinite: it is not noticed yet. */
  limit: number;
  /** Nothing begins before, Unix milliseconds. */
  restsUntil: number;
  /** The last that had begun when it was noticed: they may hang, and their ends say nothing new. */
  since: number;
  /** In a row. */
  unanswered: number;
  rests: number;
}

/** What runs, and the number that each has among all that began. */
type Numbered<Item> = ReadonlyMap<Item, number>;

/**
 * As many items as there are ask, until too many in a row are not answered; then one, with rests between; and one more with
 * each that goes well, and for each ten seconds without bad news, as answers may take minutes, until so many may as ever run.
 */
export class Silences<Item> {
  readonly #nameOf: (item: Item) => string | null;
  readonly #most: number;
  readonly #byName = new LRUCache<string, Silence>({ max: MOST_REMEMBERED });

  /** @param nameOf who is asked; null: nobody. @param most so many run at once at the most. */
  constructor(nameOf: (item: Item) => string | null, most: number) {
    this.#nameOf = nameOf;
    this.#most = most;
  }

  /**
   * A run ended without an answer.
   * @param running what runs, this one included.
   * @param begun the number of the last that has begun.
   * @param leastMs how long nothing may begin at the least.
   */
  unanswered(item: Item, running: Numbered<Item>, begun: number, now: number, leastMs: number): void {
    const name = this.#nameOf(item);
    if (name === null) return;
    const silence = this.#byName.get(name) ?? {
      limit: Number.POSITIVE_INFINITY,
      restsUntil: 0,
      since: 0,
      unanswered: 0,
      rests: 0,
    };
    if ((running.get(item) ?? 0) <= silence.since) return;
    this.#byName.set(name, silence);
    silence.unanswered += 1;
    if (silence.unanswered < UNANSWERED_IN_A_ROW) return;
    silence.limit = 1;
    silence.since = begun;
    silence.restsUntil = now + Math.max(leastMs, Math.min(REST_MS.most, REST_MS.first * 2 ** silence.rests));
    silence.rests = Math.min(silence.rests + 1, 10);
  }

  /** Somebody is there. */
  answered(item: Item): void {
    const name = this.#nameOf(item);
    const silence = name === null ? undefined : this.#byName.get(name);
    if (name === null || silence === undefined) return;
    silence.limit += 1;
    silence.unanswered = 0;
    silence.rests = 0;
    if (silence.limit >= this.#most) this.#byName.delete(name);
  }

  /** How many more may begin of each name whose silence was noticed. */
  rooms(running: Numbered<Item>, now: number): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const [item, number] of running) {
      const name = this.#nameOf(item) ?? "";
      if (number > (this.#byName.peek(name)?.since ?? Number.POSITIVE_INFINITY))
        counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    const rooms = new Map<string, number>();
    for (const [name, { limit, restsUntil }] of this.#byName.entries()) {
      if (limit === Number.POSITIVE_INFINITY) continue;
      const more = Math.floor((now - restsUntil) / REST_MS.most);
      rooms.set(name, more < 0 ? 0 : limit + more - (counts.get(name) ?? 0));
    }
    return rooms;
  }
}
