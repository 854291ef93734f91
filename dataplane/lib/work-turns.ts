/**
 * Shares out the main thread for work that may come faster than it is done. Each owner has a share of the time whatever others
 * do: work within it is done as it comes. Work beyond the shares gets `ROOM_MS` of each turn of the event loop, for all owners
 * together, less what else the turn did. When that is used up, or others wait, work waits in line; the owner that had the least
 * lately is served first. So one owner may have all the time of an idle process, and in a busy one a turn of the loop stays short
 * however many wait.
 *
 *   within ──more than its share lately──> beyond ──no room in this turn, or others wait──> in line
 *     ^──────────time passes─────────────────┘ ^─────────────its turn──────────────────────────┘
 */
import type { Clock } from "./clock.ts";
import { TokenBucket } from "./token-bucket.ts";

/** Longest time of one piece of work before others have a turn, in milliseconds; also the most that a share saves up. */
export const TURN_MS = 5;
/**
 * Longest time that all work beyond shares takes in one turn of the event loop, in milliseconds (rule 7.3). With less, sixty-four ordinary
 * streams of one organization would wait for each other: their data would outlive collections, which costs more than the work.
 */
export const ROOM_MS = 20;
/** The part of it that work in line has however long the rest of the turn was, in milliseconds: it never stands still. */
const LEAST_ROOM_MS = ROOM_MS / 2;
/** Milliseconds of each second that are an owner's share. */
const SHARE_MS = 100;
/** Most milliseconds that a share is overdrawn: it is refilled after a second at the most, however long the work took. */
const MOST_OWED_MS = SHARE_MS;
/**
 * Milliseconds after which half of the time that an owner had beyond its share is forgotten when the line is ordered: an owner
 * that was alone for an hour does not wait for an hour when another comes.
 */
const FORGOTTEN_MS = 100;
/** Least cost of a turn, in milliseconds: a turn may only start further reading, whose work is done outside of it. */
const LEAST_MS = 0.1;
/** Most owners that are remembered; a forgotten one begins anew with a full share. */
const MOST_OWNERS = 10_000;

/** Work that waits for its turn. */
export interface Waiting {
  /** Works for `mostMs` at the most, reports the time to its owner (`spend`), and waits in line again if work is left. */
  turn(mostMs: number): void;
}

/** The clocks and the event loop. */
export interface Loop {
  /** Milliseconds of a clock that never goes back. */
  readonly clock: Clock;
  /** CPU milliseconds of this thread: time in which it waits for a processor is not work. */
  readonly workedMs: () => number;
  /** Calls back when the other events of this turn of the event loop are handled. */
  readonly afterTurn: (call: () => void) => void;
}

export class WorkTurns {
  readonly #loop: Loop;
  /** By name, the least recently used first. */
  readonly #owners = new Map<string, WorkOwner>();
  /** Owners with work in line; of those that had equally little the first is next. */
  readonly #line = new Set<WorkOwner>();
  /** Milliseconds of this turn of the loop spent beyond shares. */
  #spentMs = 0;
  #isAwaited = false;
  /** When the last turn's work in line had been served, on the clock of work; null: nothing was in line since. */
  #servedAt: number | null = null;

  constructor(loop: Loop) {
    this.#loop = loop;
  }

  /** Returns the owner of this name. */
  owner(name: string): WorkOwner {
    const owner = this.#owners.get(name) ?? new WorkOwner(this, this.#loop.clock.now());
    this.#owners.delete(name);
    this.#owners.set(name, owner);
    const [oldest] = this.#owners.keys();
    if (this.#owners.size > MOST_OWNERS && oldest !== undefined) this.#owners.delete(oldest);
    return owner;
  }

  /** Whether work beyond a share may be done now: nobody waits, and this turn of the loop has time for it. */
  get hasRoom(): boolean {
    return this.#line.size === 0 && this.#spentMs < ROOM_MS;
  }

  /** Called by owners: counts work beyond a share. */
  spend(ms: number): void {
    this.#spentMs += ms;
    this.#await();
  }

  /** Called by owners: puts an owner with work in line. */
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
    this.#countRest();
    try {
      this.#serve();
    } finally {
      // Also when one of them threw: the others still wait.
      this.#spentMs = 0;
      const isLeft = this.#line.size > 0;
      this.#servedAt = isLeft ? this.#loop.workedMs() : null;
      if (isLeft) this.#await();
    }
  }

  /**
   * Takes from this turn's room what this thread did since the last turn's work in line was served: promises that the work resolved,
   * a tool loop's reading and writing of events; packets that came because it was done; requests that are no streams.
   */
  #countRest(): void {
    if (this.#servedAt === null) return;
    const restMs = this.#loop.workedMs() - this.#servedAt;
    this.#spentMs = Math.max(this.#spentMs, Math.min(restMs, ROOM_MS - LEAST_ROOM_MS));
  }

  #serve(): void {
    const { clock, workedMs } = this.#loop;
    while (this.#spentMs < ROOM_MS) {
      const now = clock.now();
      const began = workedMs();
      const owner = this.#next(now);
      if (owner === null) return;
      // Owners that had equally little are next.
      this.#line.delete(owner);
      this.#line.add(owner);
      const before = this.#spentMs;
      owner.serve(Math.min(TURN_MS, ROOM_MS - before));
      if (!owner.isWaiting) this.#line.delete(owner);
      // Work of an owner that is within its share again was not counted.
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

/** One of the owners that share the time. */
export class WorkOwner {
  readonly #turns: WorkTurns;
  /** What is left of its share, in milliseconds. */
  readonly #share: TokenBucket;
  /** Milliseconds that it had beyond its share lately, as of `#hadAt`. */
  #hadMs = 0;
  #hadAt: number;
  readonly #waiting = new Set<Waiting>();
  /** Work to which nothing more will come; it is served before `#waiting`. */
  readonly #ending = new Set<Waiting>();

  constructor(turns: WorkTurns, now: number) {
    this.#turns = turns;
    this.#share = new TokenBucket(SHARE_MS, TURN_MS, now);
    this.#hadAt = now;
  }

  /** Whether new work may be done at once; else it has to `wait`. */
  mayWork(now: number): boolean {
    return this.#share.level(now) > 0 || this.#turns.hasRoom;
  }

  /** Counts work that ended now. */
  spend(ms: number, now: number): void {
    const left = this.#share.level(now);
    this.#share.spend(Math.min(ms, left + MOST_OWED_MS), now);
    if (left > 0) return;
    this.#hadMs = this.hadMs(now) + ms;
    this.#hadAt = now;
    this.#turns.spend(ms);
  }

  /** Milliseconds that it had beyond its share lately. */
  hadMs(now: number): number {
    return this.#hadMs / 2 ** (Math.max(0, now - this.#hadAt) / FORGOTTEN_MS);
  }

  /** Puts work in line, behind the owner's other work. */
  wait(work: Waiting): void {
    this.#waiting.add(work);
    this.#turns.join(this);
  }

  /** Puts work in line to which nothing more will come, before all that does not end yet; it may wait already. */
  waitToEnd(work: Waiting): void {
    this.#waiting.delete(work);
    this.#ending.add(work);
    this.#turns.join(this);
  }

  get isWaiting(): boolean {
    return this.#waiting.size > 0 || this.#ending.size > 0;
  }

  /** Gives the owner's first work in line its turn. */
  serve(mostMs: number): void {
    const line = this.#ending.size > 0 ? this.#ending : this.#waiting;
    const [first] = line;
    if (first === undefined) return;
    line.delete(first);
    first.turn(mostMs);
  }
}
