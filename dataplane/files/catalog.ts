/** The rows of files: who owns one, whether it may be seen, in which order files are listed. */
import { sql, type CommonQueryMethods, type DatabasePool } from "slonik";
import { z } from "zod";
import { pageFrom, type ListPage, type PageAsked } from "../store/list-page.ts";
import { timestamp } from "../store/timestamp.ts";
import type { FileContents } from "./contents.ts";
import { countStorage, givingBack, takeStorage, type StorageLimits } from "./storage.ts";

/** A visible file. Times are Unix milliseconds. */
export interface StoredFile {
  readonly id: string;
  readonly organizationId: string;
  readonly filename: string;
  readonly mimeType: string;
  readonly purpose: string;
  readonly sizeBytes: number;
  readonly storage: "postgres" | "s3";
  readonly createdAt: number;
  readonly expiresAt: number | null;
}

const storageSchema = z.enum(["postgres", "s3"]);
const fileSchema = z.object({
  id: z.string(),
  organizationId: z.string(),
  filename: z.string(),
  mimeType: z.string(),
  purpose: z.string(),
  sizeBytes: z.bigint().transform(Number),
  storage: storageSchema,
  createdAt: z.number(),
  expiresAt: z.number().nullable(),
});
const columns = sql.fragment`
  id, organization_id as "organizationId", filename, mime_type as "mimeType", purpose, size_bytes as "sizeBytes",
  storage, created_at as "createdAt", expires_at as "expiresAt"
`;

export interface NewFile {
  readonly id: string;
  readonly organizationId: string;
  readonly storage: "postgres" | "s3";
}

/** The fields of a file that are known after its last byte. */
export interface FileDescription {
  readonly filename: string;
  readonly mimeType: string;
  readonly purpose: string;
  /** Unix milliseconds; null: never. */
  readonly expiresAt: number | null;
}

/** A file whose contents are stored. */
interface WholeFile extends FileDescription {
  readonly sizeBytes: number;
  readonly visibility: "ready" | "hidden";
}

/**
 * Makes the row of a file that is being received and reserves `reservedBytes`; nobody sees the file yet.
 * @param limits null: it is stored even beyond the organization's limits.
 * @throws ApiError 400 `storage_limit_reached`
 */
export async function beginFile(
  pool: DatabasePool,
  file: NewFile,
  reservedBytes: number,
  limits: StorageLimits | null,
  now: number,
): Promise<void> {
  const { id, organizationId, storage } = file;
  await pool.transaction(async (transaction) => {
    await transaction.query(sql.unsafe`
      insert into files (
        id, organization_id, state, filename, mime_type, purpose, storage, created_at, touched_at, stored_bytes
      ) values (
        ${id}, ${organizationId}, 'writing', '', '', '', ${storage}, ${timestamp(now)}, ${timestamp(now)}, ${reservedBytes}
      )
    `);
    const more = { bytes: reservedBytes, files: 1 };
    if (limits === null) await countStorage(transaction, organizationId, more);
    else await takeStorage(transaction, organizationId, more, limits);
  });
}

/** Stores a heartbeat of the file's writer. False: it was silent for too long, and is not the writer any more. */
export async function touchFile(db: CommonQueryMethods, id: string, now: number): Promise<boolean> {
  const { rowCount } = await db.query(sql.unsafe`
    update files set touched_at = ${timestamp(now)} where id = ${id} and state = 'writing'
  `);
  return rowCount > 0;
}

/**
 * Gives a file up, in any state or only if it is hidden: nobody sees it from now on, and its contents may be deleted.
 * False: there was none to give up.
 */
export async function abandonFile(
  db: CommonQueryMethods,
  id: string,
  which: "any" | "hidden" = "any",
): Promise<boolean> {
  const states = which === "any" ? ["writing", "hidden", "ready"] : ["hidden"];
  const { rowCount } = await db.query(sql.unsafe`
    with gone as (
      update files set state = 'removed', position = null
      where id = ${id} and state = any(${sql.array(states, "text")})
      returning organization_id, stored_bytes
    ), ${givingBack(sql.fragment`gone`, 1)}
    select from gone
  `);
  return rowCount > 0;
}

/**
 * Completes a file whose contents are stored. `hidden` ones wait for `showFile`. Of the reserved storage only the size stays taken.
 * @throws NotFoundError when the row was swept in the meantime: the writer was silent for too long.
 */
export async function completeFile(
  pool: DatabasePool,
  id: string,
  { filename, mimeType, purpose, expiresAt, sizeBytes, visibility }: WholeFile,
  now: number,
): Promise<StoredFile> {
  const position = visibility === "ready" ? sql.fragment`nextval('files_position')` : sql.fragment`null`;
  const expires = expiresAt === null ? sql.fragment`null` : timestamp(expiresAt);
  return pool.transaction(async (transaction) => {
    const reserved = await transaction.oneFirst(sql.type(z.object({ bytes: z.bigint() }))`
      select stored_bytes as bytes from files where id = ${id} and state = 'writing' for update
    `);
    const file = await transaction.one(sql.type(fileSchema)`
      update files set
        state = ${visibility}, position = ${position}, filename = ${filename},
        mime_type = ${mimeType}, purpose = ${purpose}, size_bytes = ${sizeBytes},
        stored_bytes = ${sizeBytes}, created_at = ${timestamp(now)}, touched_at = ${timestamp(now)}, expires_at = ${expires}
      where id = ${id} and state = 'writing'
      returning ${columns}
    `);
    const bytes = sizeBytes - Number(reserved);
    if (bytes !== 0) await countStorage(transaction, file.organizationId, { bytes, files: 0 });
    return file;
  });
}

/** Shows a hidden file; meant for the transaction that ends a batch. */
export async function showFile(db: CommonQueryMethods, id: string): Promise<void> {
  await db.query(sql.unsafe`
    update files set state = 'ready', position = nextval('files_position') where id = ${id} and state = 'hidden'
  `);
}

/** Hides a file for good; its contents are deleted afterwards. False: there was none to remove. */
export async function markRemoved(
  db: CommonQueryMethods,
  organizationId: string,
  id: string,
  now: number,
): Promise<boolean> {
  const { rowCount } = await db.query(sql.unsafe`
    with gone as (
      update files set state = 'removed', touched_at = ${timestamp(now)}
      where id = ${id} and organization_id = ${organizationId} and state in ('ready', 'hidden')
      returning organization_id, stored_bytes
    ), ${givingBack(sql.fragment`gone`, 1)}
    select from gone
  `);
  return rowCount > 0;
}

/** Returns the organization's files by id: `expired` for those that expired, no entry for those that do not exist. */
export async function findFiles(
  db: CommonQueryMethods,
  organizationId: string,
  ids: readonly string[],
  now: number,
): Promise<ReadonlyMap<string, StoredFile | "expired">> {
  const rows = await db.any(sql.type(fileSchema.extend({ gone: z.boolean() }))`
    select ${columns}, (expired or coalesce(expires_at <= ${timestamp(now)}, false)) as gone
    from files
    where id = any(${sql.array([...ids], "text")}) and organization_id = ${organizationId}
      and (state = 'ready' or expired)
  `);
  return new Map(rows.map(({ gone, ...file }) => [file.id, gone ? "expired" : file]));
}

export interface FileListQuery extends PageAsked {
  readonly organizationId: string;
  readonly purpose: string | null;
  readonly ids: readonly string[] | null;
}

/**
 * Returns one page in the requested order. The page before a cursor is the one directly before it, in the same order.
 * @returns null when the cursor names no file of the organization, or one that is long gone.
 */
export async function listFiles(
  db: CommonQueryMethods,
  query: FileListQuery,
  now: number,
): Promise<ListPage<StoredFile> | null> {
  const { cursor } = query;
  const position = cursor === null ? null : await positionOf(db, query.organizationId, cursor.id);
  if (cursor !== null && position === null) return null;
  const page = pageFrom(query, position);
  const rows = await db.any(sql.type(fileSchema)`
    select ${columns} from files
    where organization_id = ${query.organizationId} and state = 'ready'
      and (expires_at is null or expires_at > ${timestamp(now)})
      ${query.purpose === null ? sql.fragment`` : sql.fragment`and purpose = ${query.purpose}`}
      ${query.ids === null ? sql.fragment`` : sql.fragment`and id = any(${sql.array([...query.ids], "text")})`}
      ${page.beyond}
    ${page.walk}
  `);
  return page.show(rows);
}

/** Finds a cursor's position, also if its file was deleted or expired since: the client that listed it asks for the next page. */
async function positionOf(
  db: CommonQueryMethods,
  organizationId: string,
  id: string,
): Promise<bigint | null> {
  return db.maybeOneFirst(sql.type(z.object({ position: z.bigint() }))`
    select position from files
    where id = ${id} and organization_id = ${organizationId} and position is not null
  `);
}

/** Hides expired files; their rows are kept for a while, so that a read can say why a file is gone. @returns how many. */
export async function expireFiles(db: CommonQueryMethods, now: number, most: number): Promise<number> {
  const { rowCount } = await db.query(sql.unsafe`
    with gone as (
      update files set state = 'removed', expired = true, touched_at = ${timestamp(now)}
      where id in (
        select id from files
        where state = 'ready' and expires_at <= ${timestamp(now)}
        order by expires_at limit ${most} for update skip locked
      )
      returning organization_id, stored_bytes
    ), ${givingBack(sql.fragment`gone`, 1)}
    select from gone
  `);
  return rowCount;
}

/**
 * Takes files whose contents are to be deleted: removed ones, those whose writer has been silent since `silentSince`, and
 * hidden ones that no batch has shown since `hiddenSince`. They are `removed` from here on, so that a writer or a batch
 * that comes late cannot show a file whose contents are being deleted.
 * @param storage the place where their contents are.
 */
export async function takeAbandoned(
  db: CommonQueryMethods,
  {
    storage,
    silentSince,
    hiddenSince,
    most,
  }: {
    readonly storage: FileContents["storage"];
    readonly silentSince: number;
    readonly hiddenSince: number;
    readonly most: number;
  },
) {
  return db.any(sql.type(z.object({ id: z.string() }))`
    with found as (
      select id, state, touched_at from files
      where state <> 'ready' and not emptied and storage = ${storage} and (
        state = 'removed' or (state = 'writing' and touched_at < ${timestamp(silentSince)})
        or (state = 'hidden' and touched_at < ${timestamp(hiddenSince)})
      )
      order by touched_at limit ${most} for update skip locked
    ), taken as (
      update files set state = 'removed' from found where files.id = found.id
      returning files.id, files.organization_id, files.stored_bytes, found.state as before, found.touched_at
    ), gone as (
      select organization_id, stored_bytes from taken where before <> 'removed'
    ), ${givingBack(sql.fragment`gone`, 1)}
    select id from taken order by touched_at
  `);
}

/** Moves files that could not be cleared behind all others. */
export async function putLast(db: CommonQueryMethods, ids: readonly string[], now: number): Promise<void> {
  await db.query(sql.unsafe`
    update files set touched_at = ${timestamp(now)}
    where id = any(${sql.array([...ids], "text")}) and state = 'removed' and not emptied
  `);
}

/** Deletes the row of a file whose contents are deleted; a row that lists have shown is kept as a cursor and marked `emptied`. */
export async function forgetFile(db: CommonQueryMethods, id: string): Promise<void> {
  const wasListed = sql.fragment`position is not null`;
  await db.query(sql.unsafe`delete from files where id = ${id} and state <> 'ready' and not ${wasListed}`);
  await db.query(sql.unsafe`
    update files set emptied = true where id = ${id} and state <> 'ready' and ${wasListed}
  `);
}

/** Deletes the kept rows of files that expired before `expiredBefore` or were deleted before `deletedBefore`. @returns how many. */
export async function forgetGone(
  db: CommonQueryMethods,
  {
    expiredBefore,
    deletedBefore,
    most,
  }: { readonly expiredBefore: number; readonly deletedBefore: number; readonly most: number },
): Promise<number> {
  const { rowCount } = await db.query(sql.unsafe`
    delete from files where id in (
      select id from files
      where emptied and (
        (expired and touched_at < ${timestamp(expiredBefore)}) or (not expired and touched_at < ${timestamp(deletedBefore)})
      )
      order by touched_at limit ${most} for update skip locked
    )
  `);
  return rowCount;
}
