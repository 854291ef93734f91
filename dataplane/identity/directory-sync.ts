/**
 * Keeps Postgres' directory in step with the snapshot that this process serves, and says which Organizations are copied:
 * only those count as programmed (design.md §2), so one that Postgres refuses does not, and the rest do.
 */
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import type { ConfigStatus, NoteReason, OrganizationEntry, Source } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../lib/clock.ts";
import type { NewId } from "../lib/ids.ts";
import { inBackground } from "../lib/in-background.ts";
import { copySnapshot } from "./copy-snapshot.ts";
import { type GrantNote, grantNotes } from "../billing/ledger/declared-grants.ts";
import { expiredKeys, type KeyNote, keyNotes, keysBySecret } from "./declared-keys.ts";
import type { KeyDirectory } from "./directory.ts";
import type { Holds } from "../billing/holds/holds.ts";
import { type AskedIds, type Owned, readOwned } from "./owners.ts";
import { refusedDestinations, type RefusedDestination } from "../notifications/deliveries.ts";
import { reachedMoneyStep } from "../billing/steps.ts";
import { dataRefusal } from "../store/postgres.ts";
import { type NameNote, nameNotes } from "./tenant-names.ts";

const RETRY_MS = 1_000;
/** Postgres may take later what it refuses now: a constraint changes, or the row that it collides with goes. */
const REFUSED_RETRY_MS = { first: 5_000, most: 5 * 60_000 };
/** `last_used_at` follows within 15 s (rule 5.7). */
const WRITE_USED_MS = 5_000;

export interface DirectorySyncOptions {
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly directory: KeyDirectory;
  readonly holds: Pick<Holds, "refresh">;
  readonly newId: NewId;
  readonly log: Logger;
  /** When organizations that Postgres refused are tried again: after `first`, then twice as long up to `most`. */
  readonly retryRefusedMs?: { readonly first: number; readonly most: number };
}

/** Why an organization is not copied. */
interface Refusal {
  readonly reason: Extract<NoteReason, "NamesUsedUp" | "NotStored">;
  readonly message?: string;
}

/** Characters of Postgres' message in a status. */
const MOST_SAID = 300;

const notStored = (error: unknown): Refusal => {
  const message = dataRefusal(error)?.slice(0, MOST_SAID).toWellFormed();
  return { reason: "NotStored", ...(message === undefined ? {} : { message }) };
};

export class DirectorySync {
  readonly #options: DirectorySyncOptions;
  #wanted: Snapshot | null = null;
  #working: Promise<void> | null = null;
  #copied: Snapshot | null = null;
  /** Organization objects that were copied, as `uid/generation`, with notes on what could not be done. */
  #notes = new Map<
    string,
    { readonly entry: OrganizationEntry; readonly notes: readonly (GrantNote | KeyNote | NameNote)[] }
  >();
  /** Organization objects that are not copied, as `uid/generation`, and why. */
  #refused: ReadonlyMap<string, Refusal> = new Map();
  /** `keysBySecret` of the last snapshot that Postgres took whole. */
  #opened: ReturnType<typeof keysBySecret> = new Map();
  /** Ids of the organizations that serve by that snapshot, or by a later one. */
  #serving: ReadonlySet<string> = new Set();
  /** Ids to ask `readOwned` for, of the snapshot copied last. */
  #asked: AskedIds = { foreign: [], remembered: [] };
  #destinations: readonly RefusedDestination[] = [];
  #owned: { readonly serial: number; readonly owned: Owned } | null = null;
  /** How many times in a row Postgres refused some of the snapshot's organizations. */
  #refusals = 0;
  #retry: NodeJS.Timeout | undefined;
  #stop = new AbortController();
  #writing: NodeJS.Timeout | undefined;

  constructor(options: DirectorySyncOptions) {
    this.#options = options;
  }

  start(): void {
    const { log } = this.#options;
    this.#writing = setInterval(() => {
      inBackground(this.#writeUsed(), log, "writing last uses of keys");
      inBackground(this.#readOwned(), log, "reading who owns organization ids");
      inBackground(this.#readDestinations(), log, "reading which destinations are refused");
    }, WRITE_USED_MS);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    clearInterval(this.#writing);
    await this.#working;
    clearTimeout(this.#retry);
    await this.#writeUsed();
  }

  /** Copies this snapshot, or a newer one that arrives meanwhile; resolves when one of them is copied. */
  copy(snapshot: Snapshot): Promise<void> {
    if (snapshot !== this.#wanted) {
      this.#wanted = snapshot;
      this.#refusals = 0;
      clearTimeout(this.#retry);
    }
    return this.#start();
  }

  #start(): Promise<void> {
    this.#working ??= this.#work().finally(() => {
      this.#working = null;
    });
    return this.#working;
  }

  /** Returns what `/config/status` lists for the served snapshot: all objects, but Organizations only once they are copied. */
  acknowledged(objects: readonly Source[]): ConfigStatus["objects"] {
    return objects.flatMap((source) => {
      if (source.kind !== "Organization") return [{ ...source, notes: [] }];
      const copied = this.#notes.get(identity(source));
      if (copied === undefined) return [];
      const { entry } = copied;
      const notes = [
        ...copied.notes,
        ...expiredKeys(entry, this.#options.clock.now()),
        ...destinationNotes(entry, this.#destinations),
      ];
      return [{ ...source, notes: notes.map(({ path, reason }) => ({ path, reason })) }];
    });
  }

  /** Returns what `/config/status` lists as refused for the served snapshot. */
  refused(objects: readonly Source[]): NonNullable<ConfigStatus["refused"]> {
    return objects.flatMap((source) => {
      const refusal = this.#refused.get(identity(source));
      return refusal === undefined ? [] : [{ ...source, ...refusal }];
    });
  }

  /** Returns ids that their owner does not declare in the snapshot of this serial, with the owner; undefined: not known yet. */
  owned(serial: number | undefined): Owned | undefined {
    return this.#owned?.serial === serial ? this.#owned?.owned : undefined;
  }

  async #work(): Promise<void> {
    while (this.#wanted !== null && this.#wanted !== this.#copied && !this.#stop.signal.aborted) {
      const snapshot = this.#wanted;
      try {
        const isWhole = await this.#copyOnce(snapshot);
        this.#copied = snapshot;
        if (!isWhole) this.#retryLater(snapshot);
      } catch (error) {
        this.#options.log.warn(
          { err: error, serial: snapshot.index.serial },
          "organizations are not copied yet",
        );
        await new Promise((done) => setTimeout(done, RETRY_MS));
      }
    }
  }

  #retryLater(snapshot: Snapshot): void {
    if (this.#wanted !== snapshot) return;
    const { first, most } = this.#options.retryRefusedMs ?? REFUSED_RETRY_MS;
    const waitMs = Math.min(first * 2 ** this.#refusals, most);
    this.#refusals += 1;
    this.#retry = setTimeout(() => {
      this.#copied = null;
      inBackground(this.#start(), this.#options.log, "copying organizations");
    }, waitMs);
  }

  /** @returns false when Postgres refused some of the organizations. */
  async #copyOnce(snapshot: Snapshot): Promise<boolean> {
    const { pool, holds, log, newId } = this.#options;
    const { changed, refused, foreign, beyondNames } = await copySnapshot(pool, snapshot, newId);
    for (const organizationId of foreign)
      log.error({ organizationId }, "another namespace owns this organization's id: it stays as it was");
    for (const organizationId of beyondNames)
      log.warn({ organizationId }, "the namespace has used up its names: this organization is not there");
    reachedMoneyStep("directory.copied");
    this.#forgetMoved(snapshot, refused.length === 0);
    for (const { organizationId, error } of refused)
      log.error({ err: error, organizationId }, "Postgres refuses this organization: it stays as it was");
    // Redis is told now; when it is away, the look for changed accounts tells it later.
    await holds.refresh(changed).catch((error: unknown) => {
      log.warn({ err: error }, "Redis has not heard of changed organizations yet");
    });
    const kept = new Set([
      ...refused.map(({ organizationId }) => organizationId),
      ...foreign,
      ...beyondNames,
    ]);
    const organizations = snapshot.routing.organizations.filter(({ id }) => !kept.has(id));
    // Every pod reads the notes, whichever of them did the copy.
    const found = [
      ...(await grantNotes(pool, organizations)),
      ...(await nameNotes(pool, organizations)),
      ...(await keyNotes(pool, organizations)),
    ];
    const notes = Map.groupBy(found, ({ organizationId }) => organizationId);
    this.#notes = new Map(
      organizations.map((entry) => [identity(entry.source), { entry, notes: notes.get(entry.id) ?? [] }]),
    );
    const refusals = new Map<string, Refusal>([
      ...beyondNames.map((id) => [id, { reason: "NamesUsedUp" }] as const),
      ...refused.map(({ organizationId, error }) => [organizationId, notStored(error)] as const),
    ]);
    this.#refused = new Map(
      snapshot.routing.organizations.flatMap(({ id, source }) => {
        const refusal = refusals.get(id);
        return refusal === undefined ? [] : [[identity(source), refusal]];
      }),
    );
    await this.#readDestinations();
    this.#asked = { foreign, remembered: Object.keys(snapshot.routing.owners ?? {}) };
    this.#owned = { serial: snapshot.index.serial, owned: await readOwned(pool, this.#asked) };
    return refused.length + foreign.length + beyondNames.length === 0;
  }

  /** Reads the owners again: an id may have been released, or another process may have copied a newer snapshot. */
  async #readOwned(): Promise<void> {
    const known = this.#owned;
    if (known === null) return;
    try {
      const owned = await readOwned(this.#options.pool, this.#asked);
      if (this.#owned === known) this.#owned = { ...known, owned };
    } catch (error) {
      this.#options.log.debug({ err: error }, "owners of organization ids are not read");
    }
  }

  async #readDestinations(): Promise<void> {
    try {
      this.#destinations = await refusedDestinations(this.#options.pool);
    } catch (error) {
      this.#options.log.debug({ err: error }, "refused destinations are not read");
    }
  }

  /**
   * Makes the directory forget secrets whose declaration changed: their key may be another organization's by now, or have
   * another secret; and all keys of organizations that serve no more. A copy by another process changes that too, so it does
   * not matter which process made it.
   */
  #forgetMoved(snapshot: Snapshot, isWhole: boolean): void {
    const serving = new Set(
      snapshot.routing.organizations.filter(({ suspended }) => !suspended).map(({ id }) => id),
    );
    for (const id of this.#serving) if (!serving.has(id)) this.#options.directory.organizationStopped(id);
    const before = this.#opened;
    const opened = keysBySecret(snapshot.routing.organizations);
    for (const sha256 of new Set([...before.keys(), ...opened.keys()]))
      if (before.get(sha256) !== opened.get(sha256)) this.#options.directory.forget(sha256);
    // Otherwise `#opened` stays, and who served: what Postgres takes at a later try shows only in comparison with them.
    this.#serving = isWhole ? serving : new Set([...this.#serving, ...serving]);
    if (isWhole) this.#opened = opened;
  }

  async #writeUsed(): Promise<void> {
    try {
      await this.#options.directory.writeUsed();
    } catch (error) {
      this.#options.log.debug({ err: error }, "last uses of keys are not written yet");
    }
  }
}

/** Returns notes on receivers to which nothing is sent, because of where their name leads (rule 9.8). */
const destinationNotes = (
  { id, notifications = [] }: OrganizationEntry,
  refused: readonly RefusedDestination[],
): ConfigStatus["objects"][number]["notes"] =>
  notifications.flatMap(({ url }, index) =>
    refused.some((one) => one.organizationId === id && one.url === url)
      ? [{ path: `spec.notifications[${index}].url`, reason: "DestinationRefused" satisfies NoteReason }]
      : [],
  );

const identity = ({ uid, generation }: Source): string => `${uid}/${generation}`;
