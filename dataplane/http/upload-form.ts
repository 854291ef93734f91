/** Reads the form of an upload: one file, its fields before or after it (rules 4.13–4.14, 4.18). */
import type { FastifyRequest } from "fastify";
import { MIMEType } from "node:util";
import type { FileDescription, StoredFile } from "../files/catalog.ts";
import { mimeTypeOf, safeFilename } from "../files/filename.ts";
import { objectOf, parseJson } from "../dialects/fields.ts";
import { ApiError } from "../lib/api-error.ts";
import { formParts, type FormPart } from "./form-parts.ts";
import { limits } from "./limits.ts";
import { streamCounted } from "./request-body.ts";

/** `purpose` values of the official APIs; `batch_output` is only ever written by the service itself. */
const PURPOSES = new Set(["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]);
/** An upload in the Messages style names no purpose. */
const DEFAULT_PURPOSE = "user_data";
const HOUR = 3_600;
const DAY = 24 * HOUR;
/** Files for batches live so long unless the client says otherwise. */
const BATCH_SECONDS = 30 * DAY;

type Describe = (now: number) => FileDescription;

/**
 * Hands the file's bytes to `store` as they come.
 * @throws ApiError 400 for a malformed, incomplete or two-file form and for bad fields; 413 for too large a file;
 * and ApiError and ClientGone as `streamCounted` does.
 */
export async function readUpload(
  request: FastifyRequest,
  store: (source: AsyncIterable<Buffer>, describe: Describe) => Promise<StoredFile>,
): Promise<StoredFile> {
  const contentType = formType(request);
  const body = streamCounted(request, limits.formBytes, limits.uploadHeldBytes);
  // One of its parts is the file.
  const parts = formParts(contentType, body, limits.formFields + 1);
  const fields = new Map<string, string>();
  try {
    const file = await nextFile(parts, fields);
    if (file === null) throw new ApiError("missing_parameter", "The form has no file.", { param: "file" });
    const mimeType = mimeTypeOf(file.contentType, file.filename);
    const filename = safeFilename(file.filename, mimeType);
    // The stream ends with the file's part; the rest of the form is read before the file becomes visible.
    async function* source(bytes: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
      let length = 0;
      for await (const piece of bytes) {
        length += piece.length;
        if (length > limits.fileBytes) {
          throw new ApiError("too_large", `The file is larger than ${limits.fileBytes / (1024 * 1024)} MiB.`);
        }
        yield piece;
      }
      if ((await nextFile(parts, fields)) !== null) {
        throw new ApiError("invalid_request", "The form has more than one file.", { param: "file" });
      }
      describeFields(fields, 0);
    }
    return await store(source(file.bytes), (now) => ({
      filename,
      mimeType,
      ...describeFields(fields, now),
    }));
  } finally {
    await parts.return(undefined);
  }
}

/** @throws ApiError 415 */
function formType({ headers }: FastifyRequest): MIMEType {
  const given = headers["content-type"] ?? "";
  try {
    // MIMEType takes quadratic time for blanks within a subtype: only `form-data` gets there.
    if (/^[\t ]*multipart\/form-data[\t ]*(?:;|$)/i.test(given)) return new MIMEType(given);
  } catch {
    // Not a media type at all.
  }
  throw new ApiError("unsupported_media_type", "The request's content type must be multipart/form-data.");
}

/** Collects fields until a file comes. null: the form has ended. */
async function nextFile(
  parts: AsyncIterator<FormPart>,
  fields: Map<string, string>,
): Promise<FormPart | null> {
  for (;;) {
    const next = await parts.next();
    if (next.done === true) return null;
    const part = next.value;
    const { name } = part;
    if (isFile(part)) {
      if (name === "file") return part;
      throw new ApiError("invalid_request", "The form's file must be in the field `file`.", {
        param: "file",
      });
    }
    if (name === "file") throw new ApiError("invalid_type", "`file` must be a file.", { param: "file" });
    fields.set(name, await valueOf(part));
  }
}

/** A part with a file's name or of type `application/octet-stream`, and a `file` with any type (dialects.md §A5). */
const isFile = ({ name, filename, contentType = "" }: FormPart): boolean =>
  filename !== undefined ||
  /^application\/octet-stream *(;|$)/i.test(contentType) ||
  (name === "file" && contentType !== "");

async function valueOf({ name, bytes }: FormPart): Promise<string> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of bytes) {
    length += piece.length;
    if (length > limits.formFieldBytes) {
      throw new ApiError("invalid_value", "A field of the form is too long.", { param: name.slice(0, 100) });
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}

function describeFields(
  fields: ReadonlyMap<string, string>,
  now: number,
): { purpose: string; expiresAt: number | null } {
  const purpose = fields.get("purpose") ?? DEFAULT_PURPOSE;
  if (!PURPOSES.has(purpose)) {
    throw new ApiError("invalid_value", `purpose must be one of ${[...PURPOSES].join(", ")}.`, {
      param: "purpose",
    });
  }
  const anchored = anchoredSeconds(bracketed(fields));
  const plain = seconds(fields, "expires_in_seconds", 90 * DAY);
  if (anchored !== null && plain !== null) {
    throw new ApiError("invalid_value", "Give expires_after or expires_in_seconds, not both.", {
      param: "expires_in_seconds",
    });
  }
  const lives = anchored ?? plain ?? (purpose === "batch" ? BATCH_SECONDS : null);
  return { purpose, expiresAt: lives === null ? null : now + lives * 1000 };
}

/** The lifetime that `expires_after` asks for. */
function anchoredSeconds(fields: ReadonlyMap<string, string>): number | null {
  const asked = seconds(fields, "expires_after[seconds]", 30 * DAY);
  const anchor = fields.get("expires_after[anchor]");
  if (anchor !== undefined && anchor !== "created_at") {
    throw new ApiError("invalid_value", "expires_after[anchor] must be created_at.", {
      param: "expires_after[anchor]",
    });
  }
  const isAsked = anchor !== undefined || fields.has("expires_after");
  if (isAsked && asked === null) {
    throw new ApiError("missing_parameter", "expires_after needs seconds.", {
      param: "expires_after[seconds]",
    });
  }
  return asked;
}

/** `expires_after` as the bracketed fields that SDKs send; by OpenAPI an object in a form is one field of JSON instead. */
function bracketed(fields: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const text = fields.get("expires_after");
  if (text === undefined || text === "null")
    return new Map([...fields].filter(([name]) => name !== "expires_after"));
  const given = objectOf(parseJson(text));
  if (given === null || fields.has("expires_after[anchor]") || fields.has("expires_after[seconds]")) {
    throw new ApiError("invalid_value", "expires_after must be given once, as an object.", {
      param: "expires_after",
    });
  }
  const told = Object.entries(given).filter(([, value]) => value !== null);
  return new Map([
    ["expires_after", text],
    ...told.map(([name, value]): [string, string] => [
      `expires_after[${name}]`,
      typeof value === "object" ? "" : String(value),
    ]),
  ]);
}

function seconds(fields: ReadonlyMap<string, string>, name: string, most: number): number | null {
  const text = fields.get(name);
  if (text === undefined) return null;
  const value = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (value >= HOUR && value <= most) return value;
  throw new ApiError("invalid_value", `${name} must be an integer from ${HOUR} to ${most}.`, { param: name });
}
