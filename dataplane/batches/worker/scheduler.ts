/** Who gets the next free places of a worker, and how many run at once (rule 4.5). Pure but for what it remembers. */
import type { BatchInLine, ModelRoom } from "./claim.ts";
import { Pace } from "./pace.ts";
import { Silences } from "./silences.ts";

/** An item that this worker has claimed: all of these count as running. */
export interface RunningItem {
  readonly batchId: string;
  readonly organizationId: string;
  readonly model: string | null;
}

export interface SchedulerLimits {
  /** Items at once in this process. */
  readonly places: number;
  /** Items of one organization at once, so that others find a place soon, however long its items take. */
  readonly placesOfOne: number;
}

/** Names that are remembered at most, and for how long after no item of them runs or is held back. */
const MOST_REMEMBERED = 10_000;
const REMEMBERED_MS = 10 * 60_000;

/** Returns the name that an item's pace is kept by; null: none. */
type NameOf = (item: RunningItem) => string | null;
const modelOf: NameOf = ({ model }) => model;
const organizationOf: NameOf = ({ organizationId }) => organizationId;
const batchOf: NameOf = ({ batchId }) => batchId;
/** Organizations may have upstreams of their own under one model name: one that is away must slow no other organization. */
const askedOf: NameOf = ({ organizationId, model }) =>
  model === null ? null : `${organizationId}\n${model}`;

export class BatchScheduler {
  readonly #limits: SchedulerLimits;
  /** Each with its number in the order in which items began. */
  readonly #running = new Map<RunningItem, number>();
  #begun = 0;
  readonly #models = new Map<string, Pace>();
  /** By `askedOf`, of models that an organization does not share with all others. */
  readonly #ownModels = new Map<string, Pace>();
  readonly #organizations = new Map<string, Pace>();
  readonly #batches = new Map<string, Pace>();
  /** Upstreams, by `askedOf`, and stores, by organization, as one of several may be away. */
  readonly #upstreams: Silences<RunningItem>;
  readonly #stores: Silences<RunningItem>;
  /** When the newest successful run of each route began, Unix milliseconds. */
  readonly #successBegan = new Map<string, number>();

  /** Items at once at the moment, at most as many as the limits say. */
  places: number;

  constructor(limits: SchedulerLimits) {
    this.#limits = limits;
    this.#upstreams = new Silences(askedOf, limits.places);
    this.#stores = new Silences(organizationOf, limits.places);
    this.places = limits.places;
  }

  get free(): number {
    return this.places - this.#running.size;
  }

  get running(): ReadonlySet<RunningItem> {
    return new Set(this.#running.keys());
  }

  begin(item: RunningItem): void {
    this.#begun += 1;
    this.#running.set(item, this.#begun);
  }

  end(item: RunningItem): void {
    this.#running.delete(item);
  }

  /** Notes that the item's upstream and the stores are there, whatever the answer was. */
  answered(item: RunningItem): void {
    this.#upstreams.answered(item);
    this.#stores.answered(item);
  }

  /**
   * Notes a successful run.
   * @param beganAt when the run began, Unix milliseconds.
   * @param route the route that served it, one name for all aliases; null: it is gone.
   */
  succeeded(item: RunningItem, beganAt: number, route: string | null): void {
    const { model, organizationId, batchId } = item;
    this.answered(item);
    this.#models.get(model ?? "")?.succeeded();
    this.#ownModels.get(askedOf(item) ?? "")?.succeeded();
    this.#organizations.get(organizationId)?.succeeded();
    this.#batches.get(batchId)?.succeeded();
    if (route !== null) remember(this.#successBegan, route, Math.max(beganAt, this.#lastSuccessBegan(route)));
  }

  /** Whether a run of the route that began after `since` succeeded: a long answer may end well while the upstream is away. */
  succeededSince(route: string | null, since: number): boolean {
    return route !== null && this.#lastSuccessBegan(route) > since;
  }

  #lastSuccessBegan(route: string): number {
    return this.#successBegan.get(route) ?? Number.NEGATIVE_INFINITY;
  }

  /**
   * Notes that no upstream of the model answered.
   * @param leastMs how long they asked not to be called.
   */
  unanswered(item: RunningItem, now: number, leastMs: number): void {
    this.#stores.answered(item);
    this.#upstreams.unanswered(item, this.#running, this.#begun, now, leastMs);
  }

  /** Notes that a store that the item needs is away. */
  storesAway(item: RunningItem, now: number, waitMs: number): void {
    this.#stores.unanswered(item, this.#running, this.#begun, now, waitMs);
  }

  /**
   * How many more items may begin of each organization and model whose upstreams did not answer, or whose own upstreams
   * refused some; 0 or less: none for now.
   */
  askedRooms(now: number): ModelRoom[] {
    const rooms = new Map(this.#upstreams.rooms(this.#running, now));
    for (const [name, room] of this.#rooms(this.#ownModels, askedOf, now))
      rooms.set(name, Math.min(room, rooms.get(name) ?? Infinity));
    return Array.from(rooms, ([name, room]) => {
      const [organizationId = "", model = ""] = name.split("\n");
      return { organizationId, model, room };
    });
  }

  /** Notes that a model's upstreams ask for fewer requests. `isOwn`: not all organizations have these under its name. */
  modelRefused(item: RunningItem, now: number, waitMs: number, isOwn: boolean): void {
    this.#upstreams.answered(item);
    this.#stores.answered(item);
    if (isOwn) this.#refuse(this.#ownModels, askedOf, item, now, waitMs);
    else this.#refuse(this.#models, modelOf, item, now, waitMs);
  }

  /** Notes that other requests hold the organization's credit. */
  creditRefused(item: RunningItem, now: number, waitMs: number): void {
    this.#stores.answered(item);
    this.#refuse(this.#organizations, organizationOf, item, now, waitMs);
  }

  /** Notes that a limit of the batch's key or project is spent or held; its organization's other batches continue (rule 9.6). */
  limitRefused(item: RunningItem, now: number, waitMs: number): void {
    this.#stores.answered(item);
    this.#refuse(this.#batches, batchOf, item, now, waitMs);
  }

  /** Notes that the limits of a batch's key or project have changed: it need not rest for them any longer. */
  limitChanged(batchId: string): void {
    const pace = this.#batches.get(batchId);
    if (pace !== undefined) pace.blockedUntil = 0;
  }

  /** Models of which no more items may begin for now. */
  blockedModels(now: number): string[] {
    return this.#rooms(this.#models, modelOf, now).flatMap(([model, room]) => (room <= 0 ? [model] : []));
  }

  /** How many more may begin of each model that refused some and is not blocked. */
  modelRooms(now: number): Map<string, number> {
    return new Map(this.#rooms(this.#models, modelOf, now).filter(([, room]) => room > 0));
  }

  /** Batches of which no more items may begin for now. */
  blockedBatches(now: number): string[] {
    return this.#rooms(this.#batches, batchOf, now).flatMap(([id, room]) => (room <= 0 ? [id] : []));
  }

  /** How many more may begin of each name that has a pace. These may be thousands, so running items are counted once for all. */
  #rooms(paces: ReadonlyMap<string, Pace>, nameOf: NameOf, now: number): (readonly [string, number])[] {
    const running = this.#runningBy(nameOf);
    return Array.from(paces, ([name, pace]) => [name, this.#roomLeft(pace, running.get(name) ?? 0, now)]);
  }

  #runningBy(nameOf: NameOf): ReadonlyMap<string | null, number> {
    const counts = new Map<string | null, number>();
    for (const item of this.#running.keys()) {
      const name = nameOf(item);
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    return counts;
  }

  /**
   * Hands out free places one by one: each to the organization that runs least here, and within it to the batch
   * that runs least. So a batch of ten thousand leaves room for the one that comes after it.
   */
  share(open: readonly BatchInLine[], now: number): Map<string, number> {
    const byOrganization = new Map<string, { running: number; room: number; batches: Map<string, number> }>();
    const rooms = new Map<string, number>();
    const [ofOrganizations, ofBatches] = [this.#runningBy(organizationOf), this.#runningBy(batchOf)];
    const ofStores = this.#stores.rooms(this.#running, now);
    for (const { id, organizationId } of open) {
      let entry = byOrganization.get(organizationId);
      if (entry === undefined) {
        const running = ofOrganizations.get(organizationId) ?? 0;
        const room = Math.min(
          this.#roomOf(organizationId, running, now),
          ofStores.get(organizationId) ?? Infinity,
        );
        entry = { running, room, batches: new Map() };
        byOrganization.set(organizationId, entry);
      }
      const own = ofBatches.get(id) ?? 0;
      const room = this.#roomLeft(this.#batches.get(id), own, now);
      if (room <= 0) continue;
      rooms.set(id, room);
      entry.batches.set(id, own);
    }
    const shares = new Map<string, number>();
    for (let free = this.free; free > 0; free -= 1) {
      const entry = least(
        [...byOrganization.values()].filter(({ room, batches }) => room > 0 && batches.size > 0),
        ({ running }) => running,
      );
      const batch = entry === undefined ? undefined : least([...entry.batches], ([, running]) => running);
      if (entry === undefined || batch === undefined) break;
      const [id, running] = batch;
      entry.running += 1;
      entry.room -= 1;
      const share = (shares.get(id) ?? 0) + 1;
      shares.set(id, share);
      if (share < (rooms.get(id) ?? 0)) entry.batches.set(id, running + 1);
      else entry.batches.delete(id);
    }
    return shares;
  }

  #roomOf(organizationId: string, running: number, now: number): number {
    const room = this.#roomLeft(this.#organizations.get(organizationId), running, now);
    return Math.min(this.#limits.placesOfOne - running, room);
  }

  #roomLeft(pace: Pace | undefined, running: number, now: number): number {
    if (pace === undefined) return Number.POSITIVE_INFINITY;
    return now < pace.blockedUntil ? 0 : pace.limit - running;
  }

  #refuse(paces: Map<string, Pace>, nameOf: NameOf, item: RunningItem, now: number, waitMs: number): void {
    const name = nameOf(item);
    if (name === null) return;
    const running = this.#runningBy(nameOf);
    let pace = paces.get(name);
    if (pace === undefined) {
      for (const [other, { blockedUntil }] of paces)
        if (now > blockedUntil + REMEMBERED_MS && !running.has(other)) paces.delete(other);
      pace = new Pace(this.#limits.places);
    }
    remember(paces, name, pace);
    pace.refused(now, waitMs, running.get(name) ?? 0);
  }
}

function least<T>(candidates: readonly T[], of: (candidate: T) => number): T | undefined {
  let found: T | undefined;
  for (const candidate of candidates) if (found === undefined || of(candidate) < of(found)) found = candidate;
  return found;
}

function remember<T>(map: Map<string, T>, name: string, value: T): void {
  map.delete(name);
  map.set(name, value);
  const [oldest] = map.keys();
  if (map.size > MOST_REMEMBERED && oldest !== undefined) map.delete(oldest);
}
