/**
 * Files of organizations: upload, look up, list, read, delete, and the sweep that deletes what nobody may see any more.
 * A file is visible only when its last byte is stored; a process killed at any moment leaves at most a row in state
 * `writing` or `removed`, which the sweep of any other process clears.
 */
import type { DatabasePool } from "slonik";
import { ApiError } from "../lib/api-error.ts";
import { DAY_MS, HOUR_MS, type Clock } from "../lib/clock.ts";
import type { NewId } from "../lib/ids.ts";
import { unhindered, type PieceReader } from "../lib/piece-reader.ts";
import {
  abandonFile,
  beginFile,
  completeFile,
  expireFiles,
  findFiles,
  forgetFile,
  forgetGone,
  listFiles,
  markRemoved,
  putLast,
  takeAbandoned,
  touchFile,
  type FileDescription,
  type FileListQuery,
  type StoredFile,
} from "./catalog.ts";
import type { FileContents } from "./contents.ts";
import { poolInTurns } from "../store/pool-turns.ts";
import { requireStorage, Room, type StorageLimits } from "./storage.ts";

/** A writer that stored nothing for this long is dead. */
const SILENT_MS = 15 * 60_000;
/** How long an expired file is answered with `file_expired` instead of a plain 404. */
const REMEMBER_EXPIRED_MS = 30 * DAY_MS;
/** How long a deleted file may be a cursor of lists: its row is kept for that, and such rows can grow fast in number. */
const REMEMBER_DELETED_MS = HOUR_MS;
/** Age at which a hidden file is swept: a batch lives a day, so an older one will never be shown. */
const HIDDEN_MS = 72 * HOUR_MS;
/** Most files and longest time of a sweep of each place: one that does not answer takes a minute for each file. */
const SWEEP_MOST = 500;
const SWEEP_MS = 60_000;
/** Portions of `SWEEP_MOST` rows in a sweep: rows without contents are cheap, and nobody deletes more between two sweeps. */
const ROW_PORTIONS = 100;
/** Shortest time between two heartbeats of a writer. */
const TOUCH_MS = 30_000;

export interface FileStoreOptions {
  readonly postgres: DatabasePool;
  /** Where new files go. */
  readonly contents: FileContents;
  /** Where older files may still be. */
  readonly others?: readonly FileContents[];
  readonly clock: Clock;
  readonly newId: NewId;
  /** How much an organization may store. */
  readonly limitsOf: (organizationId: string) => StorageLimits;
}

/** How an upload is stored. */
export interface Keeping {
  /** `hidden`: shown by the transaction that ends its batch, and stored even beyond the organization's limits. */
  readonly visibility?: "ready" | "hidden";
  /** The least size: storage for these bytes is reserved before the first is read. */
  readonly leastBytes?: number;
  /** The largest size. */
  readonly mostBytes?: number;
}

/** All that is needed to put an organization's files into requests. */
export type FileReader = Pick<FileStore, "find" | "read">;

export class FileStore {
  readonly #postgres: DatabasePool;
  readonly #contents: FileContents;
  readonly #byStorage: ReadonlyMap<string, FileContents>;
  readonly #clock: Clock;
  readonly #newId: NewId;
  readonly #limitsOf: FileStoreOptions["limitsOf"];

  constructor({ postgres, contents, others = [], clock, newId, limitsOf }: FileStoreOptions) {
    this.#postgres = postgres;
    this.#contents = contents;
    this.#byStorage = new Map([...others, contents].map((place) => [place.storage, place]));
    this.#clock = clock;
    this.#newId = newId;
    this.#limitsOf = limitsOf;
  }

  /** Returns how much an organization may store. */
  limitsOf(organizationId: string): StorageLimits {
    return this.#limitsOf(organizationId);
  }

  /** @throws ApiError 400 `storage_limit_reached` when a file of this size would not fit now. */
  async requireRoom(organizationId: string, bytes: number): Promise<void> {
    const limits = this.#limitsOf(organizationId);
    await requireStorage(this.#of(organizationId), organizationId, { bytes, files: 1 }, limits);
  }

  /**
   * Stores a file. `describe` is called after the last byte, because a form's fields may follow the file.
   * Throws what `source` or `describe` throw; nothing is left then.
   * @throws ApiError 400 `storage_limit_reached` as soon as that is known; nothing is left then.
   */
  async create(
    organizationId: string,
    source: AsyncIterable<Buffer>,
    describe: (now: number) => FileDescription,
    { visibility = "ready", leastBytes = 0, mostBytes = Infinity }: Keeping = {},
  ): Promise<StoredFile> {
    const id = this.#newId("file");
    const { storage } = this.#contents;
    const limits = visibility === "hidden" ? null : this.#limitsOf(organizationId);
    const file = { id, organizationId, storage };
    const pool = this.#of(organizationId);
    await beginFile(pool, file, leastBytes, limits, this.#clock.now());
    try {
      let touched = this.#clock.now();
      const room =
        limits === null
          ? null
          : new Room(pool, { kind: "file", id, organizationId }, limits, {
              least: leastBytes,
              most: mostBytes,
            });
      const fitting = room === null ? source : fittingInto(room, source);
      const size = await this.#contents.write(file, fitting, async () => {
        const now = this.#clock.now();
        if (now - touched < TOUCH_MS) return;
        touched = now;
        if (!(await touchFile(pool, id, now))) throw new Error(`the upload ${id} was silent too long`);
      });
      const now = this.#clock.now();
      return await completeFile(pool, id, { ...describe(now), sizeBytes: size, visibility }, now);
    } catch (error) {
      await this.#giveUp(file).catch(() => undefined);
      throw error;
    }
  }

  /** Returns a file. @throws ApiError 404; foreign and unknown ids get the same answer (rule 4.16), an expired one says so. */
  async get(organizationId: string, id: string): Promise<StoredFile> {
    const file = (await this.find(organizationId, [id])).get(id);
    if (file === undefined) throw fileNotFound(id);
    if (file === "expired") throw new ApiError("file_expired", `The file ${id} has expired.`);
    return file;
  }

  /** Returns those of `ids` that are files of the organization; `expired` for those that expired within `REMEMBER_EXPIRED_MS`. */
  async find(
    organizationId: string,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, StoredFile | "expired">> {
    const known = ids.filter(isFileId);
    if (known.length === 0) return new Map();
    return await findFiles(this.#of(organizationId), organizationId, known, this.#clock.now());
  }

  /** Returns one page; null: the cursor names no file of the organization. */
  async list(query: FileListQuery) {
    if (query.cursor !== null && !isFileId(query.cursor.id)) return null;
    return listFiles(this.#postgres, query, this.#clock.now());
  }

  /**
   * Yields the bytes from `start` to `end` (exclusive), in pieces as large as `reader` takes them.
   * @throws ApiError 404 when the file was deleted or expired meanwhile.
   */
  async *read(
    file: StoredFile,
    start = 0,
    end = file.sizeBytes,
    reader: PieceReader = unhindered,
  ): AsyncIterable<Buffer> {
    try {
      yield* this.#placeOf(file.storage).read(file.id, start, end, reader);
    } catch (error) {
      await this.get(file.organizationId, file.id);
      throw error;
    }
  }

  /** Deletes a file: once this returns nobody sees it. @throws ApiError 404 */
  async delete(organizationId: string, id: string): Promise<void> {
    const file = await this.get(organizationId, id);
    if (!(await markRemoved(this.#of(organizationId), organizationId, id, this.#clock.now())))
      throw fileNotFound(id);
    await this.#clear(id, this.#placeOf(file.storage)).catch(() => undefined);
  }

  /** Deletes a file that is still hidden; one that was shown meanwhile stays. Contents that cannot be deleted now are swept. */
  async discardHidden({ id, storage }: StoredFile): Promise<void> {
    if (!(await abandonFile(this.#postgres, id, "hidden"))) return;
    await this.#clear(id, this.#placeOf(storage)).catch(() => undefined);
  }

  /** Deletes files that expired, were deleted, or were never finished. Any number of processes may do so at once. */
  async sweep(): Promise<void> {
    const now = this.#clock.now();
    // In many portions, so that the expired files of one organization do not delay giving back the storage of another's.
    await inPortions(() => expireFiles(this.#postgres, now, SWEEP_MOST));
    // Contents that this process cannot reach are left to one that can. One place that is away must not keep the files
    // of the other.
    const places = [...this.#byStorage.values()].map((place) => this.#sweepPlace(place, now));
    const failures = (await Promise.all(places)).flat();
    await inPortions(() =>
      forgetGone(this.#postgres, {
        expiredBefore: now - REMEMBER_EXPIRED_MS,
        deletedBefore: now - REMEMBER_DELETED_MS,
        most: SWEEP_MOST,
      }),
    );
    if (failures.length > 0) throw failures[0];
  }

  /** @returns the errors of what could not be cleared; never fails. */
  async #sweepPlace(place: FileContents, now: number): Promise<readonly unknown[]> {
    const failures: unknown[] = [];
    const failed: string[] = [];
    try {
      const abandoned = await takeAbandoned(this.#postgres, {
        storage: place.storage,
        silentSince: now - SILENT_MS,
        hiddenSince: now - HIDDEN_MS,
        most: SWEEP_MOST,
      });
      for (const { id } of abandoned) {
        if (this.#clock.now() - now >= SWEEP_MS) break;
        await this.#clear(id, place).catch((error: unknown) => {
          failures.push(error);
          failed.push(id);
        });
      }
      if (failed.length > 0) await putLast(this.#postgres, failed, this.#clock.now());
    } catch (error) {
      failures.push(error);
    }
    return failures;
  }

  /**
   * Undoes a failed upload. The row comes first, as `completeFile` may have shown the file though its answer was lost. What
   * cannot be cleared now, because a store is away, is swept later.
   */
  async #giveUp({ id, organizationId }: Pick<StoredFile, "id" | "organizationId">): Promise<void> {
    await abandonFile(this.#of(organizationId), id);
    await this.#clear(id, this.#contents);
  }

  async #clear(id: string, place: FileContents): Promise<void> {
    await place.remove(id);
    await forgetFile(this.#postgres, id);
  }

  /** The database for what an organization asks, in its turn. */
  #of(organizationId: string): DatabasePool {
    return poolInTurns(this.#postgres, organizationId);
  }

  #placeOf(storage: string): FileContents {
    const place = this.#byStorage.get(storage);
    if (place === undefined) throw new Error(`files are kept in ${storage}, which is not configured`);
    return place;
  }
}

/** Repeats work on at most `SWEEP_MOST` rows, which returns how many there were, until there are fewer. */
async function inPortions(work: () => Promise<number>): Promise<void> {
  for (let portion = 0; portion < ROW_PORTIONS; portion += 1) if ((await work()) < SWEEP_MOST) return;
}

/** Yields the bytes of `source`, each piece after storage for it is reserved. */
async function* fittingInto(room: Room, source: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    await room.fit(bytes);
    yield chunk;
  }
}

/** Whether it has the form of our ids. Other text may hold what Postgres refuses in text (NUL). */
const isFileId = (id: string): boolean => /^file_[A-Za-z0-9]{1,64}$/.test(id);

export const fileNotFound = (id: string): ApiError =>
  new ApiError("not_found", `No file with the id ${JSON.stringify(id.slice(0, 100))} was found.`);
