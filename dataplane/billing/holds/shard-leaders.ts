/**
 * Which shards this pod leads: it drains and sweeps them, and the leader of shard 0 writes changed accounts to Redis
 * (upkeep.ts). Each has one leader, as a hundred pods doing the same would only load the stores. A leader counts up its beat in
 * Redis each round (store/meter-lead.lua); a pod that sees the same beat for a second takes its place. By counts and each pod's
 * monotonic clock: a clock that steps neither ends a lead nor keeps a dead one. Two leaders for a moment do no harm.
 */
import { operation, type Shard } from "./shard.ts";

/** A leader without a beat for so long is dead, or cut off. */
const SILENT_MS = 1_000;
/** A leader that could not do its work leaves it to others for so long. */
const ABSTAIN_MS = 2_000;
const LEAD_MS = 1_000;

interface Seen {
  /** The leader and its beat, in one word. */
  readonly word: string;
  /** `performance.now()` at which it was first seen. */
  readonly since: number;
}

export interface ShardLeadersOptions {
  /** A name that no other process has, without a space. */
  readonly pod: string;
  readonly shards: readonly Shard[];
  /** 0 … 1; which shard is taken from a pod that leads too many. */
  readonly random: () => number;
}

export class ShardLeaders {
  readonly #options: ShardLeadersOptions;
  readonly #seen: (Seen | null)[];
  readonly #mine = new Set<number>();
  #abstainsUntil = 0;

  constructor(options: ShardLeadersOptions) {
    this.#options = options;
    this.#seen = options.shards.map(() => null);
  }

  has(shard: number): boolean {
    return this.#mine.has(shard);
  }

  /** `word`: the shard's leader and beat in Redis. `now`: `performance.now()`. */
  saw(shard: number, word: string | null, now: number): void {
    if (word === null) this.#seen[shard] = null;
    else if (this.#seen[shard]?.word !== word) this.#seen[shard] = { word, since: now };
    if (podOf(word) !== this.#options.pod) this.#mine.delete(shard);
  }

  /** Beats for this pod's shards, takes those of dead leaders, and one of a pod that leads too many. */
  async claim(now: number): Promise<void> {
    if (now < this.#abstainsUntil) return;
    const { pod } = this.#options;
    const wanted = [...this.#seen.entries()].filter(
      ([, seen]) => seen === null || podOf(seen.word) === pod || seen.since <= now - SILENT_MS,
    );
    const more = wanted.length === this.#mine.size ? this.#fromTheBusiest() : null;
    if (more !== null) wanted.push(more);
    await Promise.all(wanted.map(([shard, seen]) => this.#lead(shard, seen)));
  }

  /** Leaves this pod's shards to others, as it cannot do the work, or ends. Calls every shard; never fails. */
  async resign(now: number): Promise<void> {
    this.#abstainsUntil = now + ABSTAIN_MS;
    this.#mine.clear();
    const resign = operation("resign", this.#options.pod);
    await Promise.allSettled(this.#options.shards.map((shard) => shard.run(resign, LEAD_MS)));
  }

  /** A shard of the pod that leads most, if taking it evens out both shares. */
  #fromTheBusiest(): [number, Seen] | null {
    const byPod = Map.groupBy(this.#seen.entries(), ([, seen]) => podOf(seen?.word ?? null));
    const busiest = [...byPod.values()].reduce((most, one) => (one.length > most.length ? one : most), []);
    if (busiest.length < this.#mine.size + 2) return null;
    const [shard, seen] = busiest[Math.floor(this.#options.random() * busiest.length)] ?? [];
    return shard === undefined || seen === undefined || seen === null ? null : [shard, seen];
  }

  async #lead(index: number, seen: Seen | null): Promise<void> {
    const lead = operation("lead", this.#options.pod, seen?.word.split(" ")[1] ?? "");
    try {
      const [word] = (await this.#options.shards[index]?.run(lead, LEAD_MS)) ?? [];
      if (word === "mine") this.#mine.add(index);
      else this.#mine.delete(index);
    } catch {
      // Redis is away: so is what would be drained.
      this.#mine.delete(index);
    }
  }
}

const podOf = (word: string | null): string => word?.split(" ")[0] ?? "";
