/**
 * How much an organization stores, and how much it may (rule 7.8): the bytes of its files (also hidden ones and those
 * being received), of its batches' requests and of its results; and how many batches it has. One row for each
 * organization, changed in the transaction that adds or deletes what it counts; `reconcileStorage` counts it again.
 *
 * Locks: first the row of the file or batch, then that of the organization; several organizations' in the order of
 * their ids.
 */
import { sql, type CommonQueryMethods, type DatabasePool, type FragmentSqlToken } from "slonik";
import { z } from "zod";
import { ApiError } from "../lib/api-error.ts";

/** `Organization.spec.storage`. */
export interface StorageLimits {
  readonly maxBytes: number;
  readonly maxFiles: number;
}

export interface StorageUse {
  readonly bytes: number;
  readonly files: number;
}

/** Bytes that contents of unknown size reserve at a time. */
const STEP_BYTES = 8 * 1024 * 1024;

const useSchema = z.object({
  bytes: z.bigint().transform(Number),
  files: z.bigint().transform(Number),
});

/** Returns what the organization stores now. */
export async function storageOf(db: CommonQueryMethods, organizationId: string): Promise<StorageUse> {
  const row = await db.maybeOne(sql.type(useSchema)`
    select bytes, files from storage where organization_id = ${organizationId}
  `);
  return row ?? { bytes: 0, files: 0 };
}

/** Counts more (or, negative, less) whatever the limit: results of accepted requests are stored even beyond it. */
export async function countStorage(
  db: CommonQueryMethods,
  organizationId: string,
  { bytes, files }: StorageUse,
): Promise<void> {
  await db.query(sql.unsafe`
    insert into storage (organization_id, bytes, files) values (${organizationId}, ${bytes}, ${files})
    on conflict (organization_id) do update
    set bytes = storage.bytes + excluded.bytes, files = storage.files + excluded.files
  `);
}

/**
 * Counts more if it fits.
 * @param own what the same upload has taken before; the error does not count it as used, as it is given back.
 * @throws ApiError 400 `storage_limit_reached` that names what is used and the maximum.
 */
export async function takeStorage(
  db: CommonQueryMethods,
  organizationId: string,
  { bytes, files }: StorageUse,
  limits: StorageLimits,
  own: StorageUse = { bytes: 0, files: 0 },
): Promise<void> {
  const { rowCount } = await db.query(sql.unsafe`
    insert into storage (organization_id, bytes, files)
    select ${organizationId}::text, ${bytes}::int8, ${files}::int8
    where ${bytes}::int8 <= ${limits.maxBytes}::int8 and ${files}::int8 <= ${limits.maxFiles}::int8
      or exists (select from storage where organization_id = ${organizationId})
    on conflict (organization_id) do update
    set bytes = storage.bytes + excluded.bytes, files = storage.files + excluded.files
    where storage.bytes + excluded.bytes <= ${limits.maxBytes}::int8
      and (excluded.files = 0 or storage.files + excluded.files <= ${limits.maxFiles}::int8)
  `);
  if (rowCount > 0) return;
  const used = await storageOf(db, organizationId);
  throw storageFull({ bytes: used.bytes - own.bytes, files: used.files - own.files }, limits);
}

/** Counts one batch more where there are fewer than `most`. False: there are as many. */
export async function takeBatch(
  db: CommonQueryMethods,
  organizationId: string,
  most: number,
): Promise<boolean> {
  const { rowCount } = await db.query(sql.unsafe`
    insert into storage (organization_id, bytes, files, batches) values (${organizationId}, 0, 0, 1)
    on conflict (organization_id) do update set batches = storage.batches + 1 where storage.batches < ${most}::int8
  `);
  return rowCount > 0;
}

/**
 * Makes the parts of a `with` that give back the storage of the rows in `freed` (`organization_id`, `stored_bytes`);
 * `files` and `batches`: how many of these each row counts for.
 */
export const givingBack = (
  freed: FragmentSqlToken,
  files: 0 | 1,
  batches: 0 | 1 = 0,
): FragmentSqlToken => sql.fragment`
  freed_room as (
    select organization_id, sum(stored_bytes)::int8 as bytes, (count(*) * ${files})::int8 as files,
      (count(*) * ${batches})::int8 as batches
    from ${freed} group by organization_id
  ), locked_room as (
    select organization_id from storage
    where organization_id in (select organization_id from freed_room)
    order by organization_id for update
  ), given_back as (
    update storage set bytes = storage.bytes - freed_room.bytes, files = storage.files - freed_room.files,
      batches = storage.batches - freed_room.batches
    from freed_room join locked_room using (organization_id)
    where storage.organization_id = freed_room.organization_id
  )
`;

/** A file or a batch whose contents are being received. */
export interface RoomOwner {
  readonly kind: "file" | "batch";
  readonly id: string;
  readonly organizationId: string;
}

/** Reserves storage for contents that are being received: a file's, or the requests of a batch. */
export class Room {
  readonly #pool: DatabasePool;
  readonly #owner: RoomOwner;
  readonly #limits: StorageLimits;
  readonly #mostBytes: number;
  #taken: number;

  /**
   * @param coming `least`: bytes that were reserved with the owner's row; `most`: the largest size.
   */
  constructor(
    pool: DatabasePool,
    owner: RoomOwner,
    limits: StorageLimits,
    { least = 0, most = Infinity }: { readonly least?: number; readonly most?: number } = {},
  ) {
    this.#pool = pool;
    this.#owner = owner;
    this.#limits = limits;
    this.#taken = least;
    this.#mostBytes = most;
  }

  /** Bytes that are reserved. */
  get taken(): number {
    return this.#taken;
  }

  /** Reserves storage for `bytes` in all. @throws ApiError 400 `storage_limit_reached` */
  async fit(bytes: number): Promise<void> {
    if (bytes <= this.#taken) return;
    const more = bytes - this.#taken;
    const step = Math.max(more, Math.min(STEP_BYTES, this.#mostBytes - this.#taken));
    // Near the limit a whole step may not fit: exactly what is needed is reserved.
    if (step > more && (await this.#grow(step).then(() => true, refused))) return;
    await this.#grow(more);
  }

  async #grow(more: number): Promise<void> {
    const { kind, id, organizationId } = this.#owner;
    await this.#pool.transaction(async (transaction) => {
      const { rowCount } = await transaction.query(
        kind === "file"
          ? sql.unsafe`
              update files set stored_bytes = stored_bytes + ${more} where id = ${id} and state = 'writing'`
          : sql.unsafe`
              update batches set stored_bytes = stored_bytes + ${more} where id = ${id} and state = 'creating'`,
      );
      if (rowCount === 0) throw new Error(`${id} was silent too long`);
      const own = { bytes: this.#taken, files: kind === "file" ? 1 : 0 };
      await takeStorage(transaction, organizationId, { bytes: more, files: 0 }, this.#limits, own);
    });
    this.#taken += more;
  }
}

function refused(error: unknown): false {
  if (error instanceof ApiError && error.code === "storage_limit_reached") return false;
  throw error;
}

function storageFull(used: StorageUse, { maxBytes, maxFiles }: StorageLimits): ApiError {
  return new ApiError(
    "storage_limit_reached",
    `The organization's storage has no room for this: ${used.bytes} of ${maxBytes} bytes and ${used.files} of ${maxFiles} files are in use. Delete files or results of batches, or wait for them to expire.`,
  );
}

/** @throws ApiError 400 `storage_limit_reached` when this would not fit now; nothing is reserved. */
export async function requireStorage(
  db: CommonQueryMethods,
  organizationId: string,
  { bytes, files }: StorageUse,
  limits: StorageLimits,
): Promise<void> {
  const used = await storageOf(db, organizationId);
  if (used.bytes + bytes > limits.maxBytes || used.files + files > limits.maxFiles)
    throw storageFull(used, limits);
}
