/**
 * A few threads or processes, each of which does one job at a time, for many owners. Jobs wait for a place in turns
 * (FairPlaces); one that has a place takes an idle member of the crew, or starts one. A member that is gone is replaced at once,
 * so that the next job finds a warm one.
 */
import { FairPlaces, type NoPlace, type Release } from "./fair-places.ts";

interface CrewLimits {
  readonly members: number;
  /** Jobs that may wait, of all owners and of one. */
  readonly waiting: number;
  readonly waitingOfOne: number;
  /** Longest wait for a place, milliseconds. */
  readonly waitMs: number;
}

export interface CrewMember {
  /** Whether it has answered once, and so could start. */
  readonly served: boolean;
  /** Ends it; settles when it is gone. */
  end(): Promise<unknown>;
}

export class Crew<Member extends CrewMember> {
  readonly #limits: CrewLimits;
  /** Makes a member that calls `gone` when it has ended, for whatever reason. */
  readonly #make: (gone: () => void) => Member;
  readonly #all = new Set<Member>();
  readonly #idle: Member[] = [];
  readonly #places: FairPlaces;
  readonly #closing = new AbortController();

  constructor(limits: CrewLimits, make: (gone: () => void) => Member) {
    this.#limits = limits;
    this.#make = make;
    const { members: places, waiting, waitingOfOne } = limits;
    this.#places = new FairPlaces({ places, waiting, waitingOfOne });
  }

  /** Aborted when the crew ends. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  get members(): readonly Member[] {
    return [...this.#all];
  }

  /** Starts all members ahead of the first job. */
  warm(): void {
    while (!this.closing.aborted && this.#all.size < this.#limits.members) this.#idle.push(this.#start());
  }

  /**
   * Waits for a place for one job. @returns its release, or why there is none: too many wait, it took too long, or `signal` or
   * the crew's end came before.
   * @param isOwed the job waits however many do, and however long.
   */
  async place(
    owner: string,
    signal: AbortSignal,
    isOwed = false,
  ): Promise<Release | NoPlace | "late" | "cancelled"> {
    const given = AbortSignal.any([signal, this.closing]);
    const late = new AbortController();
    const timer = isOwed ? undefined : setTimeout(() => late.abort(), this.#limits.waitMs);
    try {
      const release = await this.#places.take(owner, AbortSignal.any([given, late.signal]), isOwed);
      if (typeof release === "string" || !given.aborted) return release;
      release();
      return "cancelled";
    } catch {
      return given.aborted ? "cancelled" : "late";
    } finally {
      clearTimeout(timer);
    }
  }

  /** Takes a member for a job that has a place: an idle one, or a new one. */
  take(): Member {
    return this.#idle.pop() ?? this.#start();
  }

  /** Takes a member back that is ready for the next job. */
  giveBack(member: Member): void {
    this.#idle.push(member);
  }

  /** Ends all members and everything that waits. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#all].map((member) => member.end()));
  }

  #start(): Member {
    const member = this.#make(() => {
      this.#all.delete(member);
      const at = this.#idle.indexOf(member);
      if (at >= 0) this.#idle.splice(at, 1);
      // A member that never served may be unable to start: the next job tries again, not this loop.
      if (member.served) this.warm();
    });
    this.#all.add(member);
    return member;
  }
}
