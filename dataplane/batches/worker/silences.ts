/** Upstreams or stores that stopped answering, and how many items may try them nevertheless. Pure but for what it remembers. */
import { SharedCache } from "../../lib/shared-cache.ts";

/** Unanswered runs in a row, without an answered one between them, that count as a silence. */
const UNANSWERED_IN_A_ROW = 5;
/** How long no item begins after a silence: the first time, doubled each time, at most. So soon an upstream's return is noticed. */
const REST_MS = { first: 1_000, most: 10_000 } as const;
const MOST_REMEMBERED = 10_000;

interface Silence {
  /** Most items at once of those that began since the silence was noticed; infinite: it is not noticed yet. */
  limit: number;
  /** No item begins before this time, Unix milliseconds. */
  restsUntil: number;
  /** Number of the last item that had begun when it was noticed: items up to it may hang, and their ends say nothing new. */
  since: number;
  /** Unanswered runs in a row. */
  unanswered: number;
  rests: number;
}

/** Running items, each with its number in the order in which they began. */
type Numbered<Item> = ReadonlyMap<Item, number>;

/**
 * Limits the items that ask one name. There is no limit until too many runs in a row are unanswered; then one item may ask,
 * with rests between tries. Each answered run allows one more, and so do each ten seconds without a failure, as answers may
 * take minutes. The limit ends when it reaches `most`.
 */
export class Silences<Item extends { readonly organizationId: string }> {
  readonly #nameOf: (item: Item) => string | null;
  readonly #most: number;
  /** Owned by organizations: one whose items ask very many must not make the silences that others met forgotten. */
  readonly #byName = new SharedCache<Silence>(MOST_REMEMBERED);

  /** @param nameOf the name that an item asks; null: none. @param most items that ever run at once. */
  constructor(nameOf: (item: Item) => string | null, most: number) {
    this.#nameOf = nameOf;
    this.#most = most;
  }

  /**
   * Notes that a run ended without an answer.
   * @param running all running items, this one included.
   * @param begun the number of the last item that has begun.
   * @param leastMs the least time in which no item may begin.
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
    this.#byName.set(item.organizationId, name, silence);
    silence.unanswered += 1;
    if (silence.unanswered < UNANSWERED_IN_A_ROW) return;
    silence.limit = 1;
    silence.since = begun;
    silence.restsUntil = now + Math.max(leastMs, Math.min(REST_MS.most, REST_MS.first * 2 ** silence.rests));
    silence.rests = Math.min(silence.rests + 1, 10);
  }

  /** Notes that the name answered. */
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
    for (const name of this.#byName.keys()) {
      const { limit = Number.POSITIVE_INFINITY, restsUntil = 0 } = this.#byName.peek(name) ?? {};
      if (limit === Number.POSITIVE_INFINITY) continue;
      const more = Math.floor((now - restsUntil) / REST_MS.most);
      rooms.set(name, more < 0 ? 0 : limit + more - (counts.get(name) ?? 0));
    }
    return rooms;
  }
}
