/** `/v1/files`. Source: service.md "File", "Files", rules 4.13–4.18, dialects.md §A4–§A5. */
import type { Readable } from "node:stream";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { StoredFile } from "../../files/catalog.ts";
import type { FileStore } from "../../files/file-store.ts";
import { attachment } from "../../files/filename.ts";
import { isoSeconds, unixSeconds } from "../../lib/unix-time.ts";
import type { ErrorFamily } from "../../dialects/errors.ts";
import type { AnswerTurns } from "../answer-turns.ts";
import { familyOf } from "../error-style.ts";
import { invalidParameter, namesOfList, readGiven } from "../../lib/query.ts";
import { readFilteredList, readListPage, withoutNulls, type Query } from "../list-query.ts";
import { limits } from "../limits.ts";
import { longPage } from "../long-page.ts";
import { callerOf, type Routes } from "../route.ts";
import { readUpload } from "../upload-form.ts";

const MAX_IDS = 100;
/** The most bytes of a form apart from its file. */
const FORM_BYTES_MOST = limits.formBytes - limits.fileBytes;

export const fileRoutes =
  (files: FileStore, turns: AnswerTurns): Routes =>
  (app) => {
    const access = { config: { access: "inference" } } as const;
    const contentOf: FileContent = (request, reply, file, { start, end }) =>
      turns.download(request, reply, (reader) => files.read(file, start, end, reader));

    app.post("/v1/files", { config: { ...access.config, needsCredit: true } }, async (request) => {
      const { organizationId } = callerOf(request);
      const declared = declaredBytes(request);
      await files.requireRoom(organizationId, declared.leastBytes);
      const file = await readUpload(request, (source, describe) =>
        files.create(organizationId, source, describe, declared),
      );
      return fileObject(file, familyOf(request));
    });

    const list = turns.json(async (request, there) => {
      const given = withoutNulls(request.query as Query, ["ids"]);
      const query = readFilteredList(given, undefined, ["purpose"], ["ids"]);
      const filter = {
        organizationId: callerOf(request).organizationId,
        purpose: readPurpose(given),
        ids: readIds(given),
      };
      // Files that are named are one page (dialects.md §A4).
      const limit = query.limit ?? filter.ids?.length ?? null;
      const family = familyOf(request);
      return await readListPage({ ...query, limit }, (page) =>
        longPage(
          page,
          (part) => files.list({ ...filter, ...part }),
          () => (file) => fileObject(file, family),
          there,
        ),
      );
    });
    app.get("/v1/files", access, list);

    app.get<{ Params: { id: string } }>("/v1/files/:id", access, async (request) =>
      fileObject(await files.get(callerOf(request).organizationId, request.params.id), familyOf(request)),
    );

    app.delete<{ Params: { id: string } }>("/v1/files/:id", access, async (request) => {
      await files.delete(callerOf(request).organizationId, request.params.id);
      return { id: request.params.id, object: "file", deleted: true, type: "file_deleted" };
    });

    app.get<{ Params: { id: string } }>("/v1/files/:id/content", access, async (request, reply) =>
      sendContent(
        await files.get(callerOf(request).organizationId, request.params.id),
        request,
        reply,
        contentOf,
      ),
    );
  };

/** The least and most bytes of the form's file, by the declared length of its request. */
function declaredBytes({ headers }: FastifyRequest): { leastBytes: number; mostBytes: number } {
  const encoding = headers["content-encoding"] ?? "identity";
  const declared = encoding === "identity" ? Number(headers["content-length"] ?? NaN) : NaN;
  if (!Number.isSafeInteger(declared) || declared < 0) return { leastBytes: 0, mostBytes: Infinity };
  return { leastBytes: Math.max(0, declared - FORM_BYTES_MOST), mostBytes: declared };
}

/** The one object that both families' SDKs read; times in the style of the family. */
function fileObject(file: StoredFile, family: ErrorFamily) {
  const time = family === "messages" ? isoSeconds : unixSeconds;
  return {
    id: file.id,
    type: "file",
    object: "file",
    filename: file.filename,
    mime_type: file.mimeType,
    size_bytes: file.sizeBytes,
    bytes: file.sizeBytes,
    purpose: file.purpose,
    status: "processed",
    status_details: null,
    downloadable: true,
    created_at: time(file.createdAt),
    expires_at: file.expiresAt === null ? null : time(file.expiresAt),
  };
}

/** @throws ApiError 400, also for what Postgres refuses in a text. */
function readPurpose(query: Query): string | null {
  const purpose = readGiven(query, "purpose");
  if (purpose?.includes("\0") === true) throw invalidParameter("purpose", "purpose must not hold NUL.");
  return purpose;
}

/** `ids`, `ids[]`, `ids[0]`, repeated or separated by commas; at most 100, each once. */
function readIds(query: Query): readonly string[] | null {
  const given = namesOfList(query, "ids").flatMap((name) => query[name]);
  if (given.length === 0) return null;
  const named = given.flatMap((value) => (typeof value === "string" ? value.split(",") : []));
  const ids = [...new Set(named)].filter((id) => id !== "");
  if (ids.length === 0 || ids.length > MAX_IDS || ids.some((id) => id.includes("\0"))) {
    throw invalidParameter("ids", `ids must be from 1 to ${MAX_IDS} file ids.`);
  }
  return ids;
}

/** Reads the bytes of a file from `start` to `end` (exclusive). */
type FileContent = (
  request: FastifyRequest,
  reply: FastifyReply,
  file: StoredFile,
  range: { readonly start: number; readonly end: number },
) => Readable;

function sendContent(
  file: StoredFile,
  request: FastifyRequest,
  reply: FastifyReply,
  contentOf: FileContent,
): FastifyReply {
  // Ranges are defined for GET alone (RFC 9110 14.2), and no validator is handed out, so that none can match (13.1.5): the whole file.
  const isWhole = request.method === "HEAD" || request.headers["if-range"] !== undefined;
  const range = isWhole ? null : readByteRange(request.headers.range, file.sizeBytes);
  reply.headers({
    "content-type": file.mimeType,
    "content-disposition": attachment(file.filename),
    "x-content-type-options": "nosniff",
    "accept-ranges": "bytes",
  });
  if (range === "unsatisfiable") {
    return reply
      .code(416)
      .header("content-range", `bytes */${file.sizeBytes}`)
      .header("content-length", "0")
      .send();
  }
  const { start, end } = range ?? { start: 0, end: file.sizeBytes };
  if (range !== null) reply.code(206).header("content-range", `bytes ${start}-${end - 1}/${file.sizeBytes}`);
  reply.header("content-length", String(end - start));
  return reply.send(contentOf(request, reply, file, { start, end }));
}

/** One range of bytes, end exclusive. Several ranges or another unit: the whole file, as RFC 9110 allows. */
function readByteRange(
  header: string | undefined,
  size: number,
): { start: number; end: number } | "unsatisfiable" | null {
  const match = /^bytes=(\d*)-(\d*)$/i.exec(header?.trim() ?? "");
  const [, first = "", last = ""] = match ?? [];
  if (match === null || (first === "" && last === "")) return null;
  const start = first === "" ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === "" || last === "" ? size : Math.min(size, Number(last) + 1);
  if (first !== "" && last !== "" && Number(last) < Number(first)) return null;
  return start < end ? { start, end } : "unsatisfiable";
}
