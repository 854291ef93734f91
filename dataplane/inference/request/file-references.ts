/**
 * `file_id` in images and documents: the organization's own files take the place of their ids before anything else
 * looks at the request, on every path (rules 2.10, 4.17). Our ids never go upstream; an id that is unknown or another
 * organization's stays and is refused with its path. Sizes are checked before a byte is read.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import type { StoredFile } from "../../files/catalog.ts";
import type { FileReader } from "../../files/file-store.ts";
import { ApiError } from "../../lib/api-error.ts";
import { bodyLimits } from "../../lib/body-limits.ts";
import type { PathStep } from "../../lib/field-path.ts";
import type { WorkerPool } from "../../lib/worker-pool.ts";
import type { InferenceCall, Serve } from "../call.ts";
import { INSPECT_HERE_BYTES } from "../large/large-body.ts";
import type { Reference } from "../inspect/content.ts";
import { bodyFieldError } from "../inspect/walk.ts";
import { filesTooLarge, inlineBytes, type InlineFile, noSuchFile, paramOf } from "./put-files.ts";
import { openBody, type RequestBody, type ServeOpened } from "./request-body.ts";

/** Most different files of one request: all are looked up at once and read one by one. */
const MAX_FILES = 2_000;

/**
 * `serve`, with the organization's files in place of their ids.
 * @param pool where large bodies are worked on; null: here.
 */
export const withFileReferences =
  (serve: ServeOpened, files: FileReader, pool: WorkerPool | null = null): Serve =>
  (call) =>
    // A large body is not searched here: that would hold the event loop; the worker's look finds references anyway.
    (pool !== null && call.body.length > INSPECT_HERE_BYTES) || mayNameFiles(call.body)
      ? inlinedFirst(call, serve, files, pool)
      : serve(call);

/** Whether the body may hold `file_id`, plain or partly escaped. Escapes of letters are rare: a body with any is inspected. */
const mayNameFiles = (body: Buffer): boolean =>
  body.includes('"file_id"') ||
  (body.includes("\\u00") && (body.includes("\\u005") || body.includes("\\u006")));

async function inlinedFirst(
  call: InferenceCall,
  serve: ServeOpened,
  files: FileReader,
  pool: WorkerPool | null,
): Promise<void> {
  const { organizationId } = call.principal;
  const opened = await openBody(call.dialect, call.body, { pool, organizationId, closed: call.sink.closed });
  call.summary.askedModel = opened.inspected.model;
  const admit = (bytes: number) => call.bodyLease.take(bytes);
  await serve({ ...call, requestBody: await inlineFiles(opened, organizationId, files, admit) });
}

/**
 * Puts the organization's files in place of their ids; other ids are left, for `refuse`.
 * @param admit takes the bytes that the files add, about, before the first is read.
 * @throws ApiError 404 for a file that expired or was just deleted; 400 for one of a type that cannot stand where it is
 *   named; 413; what `admit` throws.
 */
export async function inlineFiles(
  requestBody: RequestBody,
  organizationId: string,
  files: FileReader,
  admit: (bytes: number) => Promise<void> | void,
): Promise<RequestBody> {
  const { dialect, bodyBytes, content } = requestBody.inspected;
  const references = content.references.filter(({ kind }) => kind === "file");
  // Ids in a hosted tool's blocks (also `container_upload`) are refused whether or not the file exists.
  if (references.length === 0 || content.hosted.length > 0) return requestBody;
  // Ids without a file are refused later, with the field's path.
  const found = await files.find(organizationId, differentIds(dialect, references));
  const held = new Map<string, StoredFile>();
  let size = bodyBytes;
  for (const { id, path } of references) {
    const file = found.get(id);
    if (file === undefined) continue;
    if (file === "expired") throw expired(dialect, path, id);
    held.set(id, file);
    size += inlineBytes(dialect, file);
    if (size > bodyLimits.bytes) throw filesTooLarge(dialect, path);
  }
  if (held.size > 0) await admit(size - bodyBytes);
  const contents: InlineFile[] = [];
  for (const file of held.values()) {
    const { id, mimeType, filename } = file;
    const bytes = await readWhole(files, file).catch((error: unknown) => {
      const path = references.find((reference) => reference.id === id)?.path ?? [];
      // It ended a moment ago.
      if (!(error instanceof ApiError)) throw error;
      throw error.code === "file_expired" ? expired(dialect, path, id) : noSuchFile(dialect, path, id);
    });
    contents.push({ id, mimeType, filename, bytes });
  }
  return contents.length === 0 ? requestBody : requestBody.withFiles(contents, size);
}

const expired = (dialect: Dialect, path: readonly PathStep[], id: string): ApiError =>
  bodyFieldError("file_expired", dialect, path, `the file ${id} has expired`);

function differentIds(dialect: Dialect, references: readonly Reference[]): string[] {
  const ids = new Set<string>();
  for (const { id, path } of references) {
    ids.add(id);
    if (ids.size > MAX_FILES) throw tooMany(dialect, path);
  }
  return [...ids];
}

async function readWhole(files: FileReader, file: StoredFile): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of files.read(file)) pieces.push(piece);
  return Buffer.concat(pieces);
}

function tooMany(dialect: Dialect, path: readonly PathStep[]): ApiError {
  const param = paramOf(dialect, path);
  return new ApiError("invalid_value", `${param}: a request can name at most ${MAX_FILES} files`, { param });
}
