/**
 * Files of organizations: upload, look up, list, read, delete, and the sweep that takes away what nobody may see
 * any more. A file is visible only when its last byte is stored; a process killed at any moment leaves at most a
 * row in state `writing` or `removed`, which the sweep of any other process clears.
 */
import type { DatabasePool } from "slonik";
import { ApiError } from "../lib/api-error.ts";
import { DAY_MS, HOUR_MS, type Clock } from "../lib/clock.ts";
import type { NewId } from "../lib/ids.ts";
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
import { requireStorage, Room, type StorageLimits } from "./storage.ts";

/** A writer that stored nothing for this long is dead. */
const SILENT_MS = 15 * 60_000;
/** So long a file that expired is answered with `file_expired` instead of a plain 404. */
const REMEMBER_EXPIRED_MS = 30 * DAY_MS;
/** For so long a deleted file may be a cursor of lists. No longer: its row stays for that, and such rows come fast. */
const REMEMBER_DELETED_MS = HOUR_MS;
/** A batch lives a day; a hidden file of its that is older will never be shown. */
const HIDDEN_MS = 72 * HOUR_MS;
/** A sweep clears at most so many files from each place, for so long: one that does not answer takes a minute for each file. */
const SWEEP_MOST = 500;
const SWEEP_MS = 60_000;
/** Rows without contents are cheap: a sweep changes so many portions of `SWEEP_MOST`, more than anybody deletes between two. */
const ROW_PORTIONS = 100;
/** A writer's sign of life, at most this often. */
const TOUCH_MS = 30_000;

export interface FileStoreOptions {
  readonly postgres: DatabasePool;
  /** Where new files go. */
  readonly contents: FileContents;
  /** Where older files may still be. */
  readonly others?: readonly FileContents[];
  readonly clock: Clock;
  readonly newId: NewId;
  /** How much an organization may keep. */
  readonly limitsOf: (organizationId: string) => StorageLimits;
}

/** How an upload is kept. */
export interface Keeping {
  /** `hidden`: shown by the transaction that ends its batch, and stored however much the organization keeps already. */
  readonly visibility?: "ready" | "hidden";
  /** At least so many bytes will come: there is room for them before the first is read. */
  readonly leastBytes?: number;
  /** More will not come. */
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

  /** How much an organization may keep. */
  limitsOf(organizationId: string): StorageLimits {
    return this.#limitsOf(organizationId);
  }

  /** @throws ApiError 400 `storage_limit_reached` when a file of so many bytes would not fit now. */
  async requireRoom(organizationId: string, bytes: number): Promise<void> {
    const limits = this.#limitsOf(organizationId);
    await requireStorage(this.#postgres, organizationId, { bytes, files: 1 }, limits);
  }

  /**
   * Stores a file. `describe` is asked once the last byte has come, because a form's fields may follow the file.
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
    await beginFile(this.#postgres, file, leastBytes, limits, this.#clock.now());
    try {
      let touched = this.#clock.now();
      const room =
        limits === null
          ? null
          : new Room(this.#postgres, { kind: "file", id, organizationId }, limits, {
              least: leastBytes,
              most: mostBytes,
            });
      const fitting = room === null ? source : fittingInto(room, source);
      const size = await this.#contents.write(id, fitting, async () => {
        const now = this.#clock.now();
        if (now - touched < TOUCH_MS) return;
        touched = now;
        if (!(await touchFile(this.#postgres, id, now)))
          throw new Error(`the upload ${id} was silent too long`);
      });
      const now = this.#clock.now();
      return await completeFile(this.#postgres, id, { ...describe(now), sizeBytes: size, visibility }, now);
    } catch (error) {
      await this.#giveUp(id).catch(() => undefined);
      throw error;
    }
  }

  /** @throws ApiError 404; foreign and unknown ids read alike (rule 4.16), an expired one says so. */
  async get(organizationId: string, id: string): Promise<StoredFile> {
    const file = (await this.find(organizationId, [id])).get(id);
    if (file === undefined) throw fileNotFound(id);
    if (file === "expired") throw new ApiError("file_expired", `The file ${id} has expired.`);
    return file;
  }

  /** Those of `ids` that are files of the organization, and of those that expired lately just that. */
  async find(
    organizationId: string,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, StoredFile | "expired">> {
    const known = ids.filter(isFileId);
    if (known.length === 0) return new Map();
    return await findFiles(this.#postgres, organizationId, known, this.#clock.now());
  }

  /** null: the cursor names no file of the organization. */
  async list(query: FileListQuery) {
    if (query.cursor !== null && !isFileId(query.cursor.id)) return null;
    return listFiles(this.#postgres, query, this.#clock.now());
  }

  /** Bytes from `start` to `end` (exclusive). @throws ApiError 404 once somebody has deleted the file, or it expired. */
  async *read(file: StoredFile, start = 0, end = file.sizeBytes): AsyncIterable<Buffer> {
    try {
      yield* this.#placeOf(file.storage).read(file.id, start, end);
    } catch (error) {
      await this.get(file.organizationId, file.id);
      throw error;
    }
  }

  /** Once this returns nobody sees the file. @throws ApiError 404 */
  async delete(organizationId: string, id: string): Promise<void> {
    const file = await this.get(organizationId, id);
    if (!(await markRemoved(this.#postgres, organizationId, id, this.#clock.now()))) throw fileNotFound(id);
    await this.#clear(id, this.#placeOf(file.storage)).catch(() => undefined);
  }

  /** Takes away a hidden file that will not be shown; one that was shown meanwhile stays. What cannot be cleared now is swept. */
  async discardHidden({ id, storage }: StoredFile): Promise<void> {
    if (!(await abandonFile(this.#postgres, id, "hidden"))) return;
    await this.#clear(id, this.#placeOf(storage)).catch(() => undefined);
  }

  /** Takes away what expired, was deleted, or was never finished. Any number of processes may do so at once. */
  async sweep(): Promise<void> {
    const now = this.#clock.now();
    // What one organization lets expire must not keep the room of another's files.
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

  /** @returns what could not be cleared, and why; never fails. */
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
   * An upload failed. The row goes first: an answer of the database may be lost after it showed the file. What
   * cannot be cleared now, because a store is away, is swept later.
   */
  async #giveUp(id: string): Promise<void> {
    await abandonFile(this.#postgres, id);
    await this.#clear(id, this.#contents);
  }

  async #clear(id: string, place: FileContents): Promise<void> {
    await place.remove(id);
    await forgetFile(this.#postgres, id);
  }

  #placeOf(storage: string): FileContents {
    const place = this.#byStorage.get(storage);
    if (place === undefined) throw new Error(`files are kept in ${storage}, which is not configured`);
    return place;
  }
}

/** Repeats work on at most `SWEEP_MOST` rows, which tells how many there were, until there are fewer. */
async function inPortions(work: () => Promise<number>): Promise<void> {
  for (let portion = 0; portion < ROW_PORTIONS; portion += 1) if ((await work()) < SWEEP_MOST) return;
}

/** The bytes of `source`, each piece only once there is room for it. */
async function* fittingInto(room: Room, source: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    await room.fit(bytes);
    yield chunk;
  }
}

/** Anything else cannot be an id of ours, and may hold what Postgres refuses in text (NUL). */
const isFileId = (id: string): boolean => /^file_[A-Za-z0-9]{1,64}$/.test(id);

const fileNotFound = (id: string): ApiError =>
  new ApiError("not_found", `No file with the id ${JSON.stringify(id.slice(0, 100))} was found.`);
