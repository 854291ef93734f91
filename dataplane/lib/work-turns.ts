/**
 * Turns on the main thread for work that may come faster than it is done. Each owner has a share of the time that is his whatever
 * others do: within it his work is done as it comes. What is beyond it has `ROOM_MS` of each turn of the event loop, of all
 * owners together, and what finds none left waits in line, the owner's who had the least lately first. So where the process has
 * nothing else to do one owner may have all of it, and where it has, a turn of the loop stays short however many wait.
 *
 *   within ──more than his share lately──> beyond ──no room in this turn, or others wait──> in line
 *     ^──────────time passes─────────────────┘ ^─────────────his turn──────────────────────────┘
 */
import type { Clock } from "./clock.ts";
import { TokenBucket } from "./token-bucket.ts";

/** Longest time that one piece of work takes before others have a turn, in milliseconds; also what a share holds at once. */
export const TURN_MS = 5;
/**
 * Longest time that all work beyond shares takes in one turn of the event loop, in milliseconds (rule 7.3). With less, sixty-four ordinary
 * streams of one organization would wait for each other: what waits outlives collections, which costs more than the work.
 */
export const ROOM_MS = 20;
/** Of each second so many milliseconds are an owner's own. */
const SHARE_MS = 100;
/** What an owner had beyond his share he has back after a second at the most, however much it was. */
const MOST_OWED_MS = SHARE_MS;
/**
 * So soon half of what an owner had beyond his share is forgotten when it is asked who had least: who was alone for an hour is not
 * kept waiting for an hour by one who comes now.
 */
const FORGOTTEN_MS = 100;
/** Having its turn costs as much at least: there may be nothing to do but to read on, which is done outside of it. */
const LEAST_MS = 0.1;
/** Owners that are remembered; one who is forgotten begins anew with his share. */
const MOST_OWNERS = 10_000;

/** Work that waits for its turn. */
export interface Waiting {
  /** Its turn. It works for `mostMs` at the most, tells its owner how long that took, and joins the line again where that was not enough. */
  turn(mostMs: number): void;
}

/** What the turns need of the outside. */
export interface Loop {
  /** Milliseconds of a clock that never goes back. */
  readonly clock: Clock;
  /** Milliseconds of a processor that this thread has had: while others have it, no work is done. */
  readonly workedMs: () => number;
  /** Calls when whatever else this turn of the event loop brought was looked at. */
  readonly afterTurn: (call: () => void) => void;
}

export class WorkTurns {
  readonly #loop: Loop;
  /** The last that came stands last. */
  readonly #owners = new Map<string, WorkOwner>();
  /** Owners with work in line; of equal ones the first is next. */
  readonly #line = new Set<WorkOwner>();
  /** Milliseconds of this turn of the loop that went to what is beyond shares. */
  #spentMs = 0;
  #isAwaited = false;

  constructor(loop: Loop) {
    this.#loop = loop;
  }

  /** The owner of this name. */
  owner(name: string): WorkOwner {
    const owner = this.#owners.get(name) ?? new WorkOwner(this, this.#loop.clock.now());
    this.#owners.delete(name);
    this.#owners.set(name, owner);
    const [oldest] = this.#owners.keys();
    if (this.#owners.size > MOST_OWNERS && oldest !== undefined) this.#owners.delete(oldest);
    return owner;
  }

  /** Whether what is beyond its owner's share may be done now: nobody waits, and this turn of the loop has room for it. */
  get hasRoom(): boolean {
    return this.#line.size === 0 && this.#spentMs < ROOM_MS;
  }

  /** Of owners: so long was worked beyond a share. */
  spend(ms: number): void {
    this.#spentMs += ms;
    this.#await();
  }

  /** Of owners: it has work in line. */
  join(owner: WorkOwner): void {
    this.#line.add(owner);
    this.#await();
  }

  #await(): void {
    if (this.#isAwaited) return;
    this.#isAwaited = true;
    this.#loop.afterTurn(() => this.#afterTurn());
  }

  #afterTurn(): void {
    this.#isAwaited = false;
    try {
      this.#serve();
    } finally {
      // Also where one of them failed: the others wait on.
      this.#spentMs = 0;
      if (this.#line.size > 0) this.#await();
    }
  }

  #serve(): void {
    const { clock, workedMs } = this.#loop;
    while (this.#spentMs < ROOM_MS) {
      const now = clock.now();
      const began = workedMs();
      const owner = this.#next(now);
      if (owner === null) return;
      // Of equal ones the others are next.
      this.#line.delete(owner);
      this.#line.add(owner);
      const before = this.#spentMs;
      owner.serve(Math.min(TURN_MS, ROOM_MS - before));
      if (!owner.isWaiting) this.#line.delete(owner);
      // Where it is within its share by now its work was not counted.
      this.#spentMs = Math.max(this.#spentMs, before + Math.max(LEAST_MS, workedMs() - began));
    }
  }

  #next(now: number): WorkOwner | null {
    let next: WorkOwner | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const owner of this.#line) {
      const hadMs = owner.hadMs(now);
      if (hadMs >= least) continue;
      least = hadMs;
      next = owner;
    }
    return next;
  }
}

/** One of those among whom the time is shared out. */
export class WorkOwner {
  readonly #turns: WorkTurns;
  /** Milliseconds that are his own. */
  readonly #share: TokenBucket;
  /** What was beyond it lately, as of `#hadAt`. */
  #hadMs = 0;
  #hadAt: number;
  readonly #waiting = new Set<Waiting>();
  /** Those that go before. */
  readonly #ending = new Set<Waiting>();

  constructor(turns: WorkTurns, now: number) {
    this.#turns = turns;
    this.#share = new TokenBucket(SHARE_MS, TURN_MS, now);
    this.#hadAt = now;
  }

  /** Whether work that came just now may be done at once; else it is to `wait`. */
  mayWork(now: number): boolean {
    return this.#share.level(now) > 0 || this.#turns.hasRoom;
  }

  /** So long was worked, up to now. */
  spend(ms: number, now: number): void {
    const left = this.#share.level(now);
    this.#share.spend(Math.min(ms, left + MOST_OWED_MS), now);
    if (left > 0) return;
    this.#hadMs = this.hadMs(now) + ms;
    this.#hadAt = now;
    this.#turns.spend(ms);
  }

  /** What he had beyond his share lately. */
  hadMs(now: number): number {
    return this.#hadMs / 2 ** (Math.max(0, now - this.#hadAt) / FORGOTTEN_MS);
  }

  /** Takes a place in line, behind his own. */
  wait(work: Waiting): void {
    this.#waiting.add(work);
    this.#turns.join(this);
  }

  /** Of what waits already: nothing more will come of it, and it is to be over before what still goes on. */
  waitToEnd(work: Waiting): void {
    this.#waiting.delete(work);
    this.#ending.add(work);
    this.#turns.join(this);
  }

  get isWaiting(): boolean {
    return this.#waiting.size > 0 || this.#ending.size > 0;
  }

  /** Gives the first of his that wait its turn. */
  serve(mostMs: number): void {
    const line = this.#ending.size > 0 ? this.#ending : this.#waiting;
    const [first] = line;
    if (first === undefined) return;
    line.delete(first);
    first.turn(mostMs);
  }
}
