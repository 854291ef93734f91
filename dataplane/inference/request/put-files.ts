/** Puts files in the place of their ids, on every path (rules 2.10, 4.17). Pure. */
import type { Dialect } from "../../dialects/dialect.ts";
import { isTextType, registeredType } from "../../dialects/media.ts";
import type { JsonObject, JsonValue } from "../../dialects/messages/types.ts";
import { dialectErrorFamily } from "../../dialects/errors.ts";
import { ApiError } from "../../lib/api-error.ts";
import { BODY_LIMIT, bodyLimits } from "../../lib/body-limits.ts";
import { fieldPath, type PathStep } from "../../lib/field-path.ts";
import { isObject } from "../../lib/json-object.ts";
import { shortened } from "../../lib/first-units.ts";
import { JsonReader } from "../../lib/json-reader.ts";
import { type Edit, splice } from "../../lib/json-splice.ts";
import type { Inspection } from "../inspect/body.ts";
import type { Reference } from "../inspect/content.ts";
import { bodyFieldError } from "../inspect/walk.ts";

/** Most bytes of an object that names a file: it is decoded, and holds little else. */
const MAX_OBJECT_BYTES = 8 * 1024;
/** Most characters of an id that an error repeats; ours are shorter. */
const MOST_SHOWN_ID = 200;

/** A whole file, as plain data. */
export interface InlineFile {
  readonly id: string;
  readonly mimeType: string;
  readonly filename: string;
  readonly bytes: Uint8Array;
}

/**
 * Puts files in the place of their ids.
 * @throws ApiError 400 for a file of a type that cannot stand where it is named; 413.
 */
export function putFiles({ dialect, body, content }: Inspection, files: readonly InlineFile[]): Buffer {
  const root = JSON.parse(body.toString("utf8")) as JsonObject;
  const held = new Map(files.map((file) => [file.id, file]));
  const references = content.references.filter(({ kind }) => kind === "file");
  const edits: Edit[] = [];
  let size = body.length;
  for (const reference of references) {
    const file = held.get(reference.id);
    // Ids in places where no file can stand are left, and refused later.
    if (file === undefined || reference.objectStart < 0) continue;
    // Of two objects, one inside of the other, only one can be rewritten.
    if (reference.objectStart < (edits.at(-1)?.end ?? 0)) throw tooMuchElse();
    const edit = editOf(dialect, body, root, reference, file);
    // A text takes more than its file has, as its line ends and quotes are escaped.
    size += Buffer.byteLength(edit.text) - (edit.end - edit.start);
    if (size > bodyLimits.bytes) throw filesTooLarge(dialect, reference.path);
    edits.push(edit);
  }
  return splice(body, edits);
}

/** Returns the least that a file adds to a body. Checked before the file is read; `putFiles` checks the whole. */
export function inlineBytes(
  dialect: Dialect,
  { mimeType, sizeBytes }: { readonly mimeType: string; readonly sizeBytes: number },
): number {
  const isText = dialect === "messages" && isTextType(registeredType(mimeType));
  return isText ? sizeBytes : Math.ceil((sizeBytes * 4) / 3);
}

/** Rewrites the object that names the file, with the file itself. */
function editOf(
  dialect: Dialect,
  body: Buffer,
  root: JsonObject,
  reference: Reference,
  file: InlineFile,
): Edit {
  const { start, end, value } = objectAt(body, reference.objectStart);
  const { file_id: _id, ...rest } = value;
  const text = JSON.stringify({ ...rest, ...contentOf(dialect, root, reference, value, file) });
  return { start, end, text: text + titleOf(dialect, root, reference, file) };
}

/**
 * Returns the title to add behind the source of a Messages document: its file's name, where the client gives it none.
 * The other dialects have the name beside the content.
 */
function titleOf(dialect: Dialect, root: JsonObject, reference: Reference, { filename }: InlineFile): string {
  const block = dialect === "messages" ? at(root, reference.path.slice(0, -2)) : undefined;
  if (!isObject(block) || block["type"] !== "document" || Object.hasOwn(block, "title")) return "";
  return `,"title":${JSON.stringify(filename)}`;
}

function contentOf(
  dialect: Dialect,
  root: JsonObject,
  reference: Reference,
  holder: JsonObject,
  file: InlineFile,
): JsonObject {
  const { filename } = file;
  const mimeType = registeredType(file.mimeType);
  const bytes = Buffer.from(file.bytes.buffer, file.bytes.byteOffset, file.bytes.byteLength);
  const dataUrl = () => `data:${mimeType};base64,${bytes.toString("base64")}`;
  const isImage = mimeType.startsWith("image/");
  if (dialect === "messages") {
    const block = at(root, reference.path.slice(0, -2));
    const wanted = isObject(block) ? block["type"] : undefined;
    const isPdf = mimeType === "application/pdf";
    if ((wanted === "image" && isImage) || (wanted === "document" && isPdf)) {
      return { type: "base64", media_type: mimeType, data: bytes.toString("base64") };
    }
    if (wanted === "document" && isTextType(mimeType)) {
      return { type: "text", media_type: "text/plain", data: bytes.toString("utf8") };
    }
    throw unsupported(dialect, reference.path, file);
  }
  // The part itself in Responses, an object inside of it in Chat.
  const inside = reference.path.at(-2);
  if (holder["type"] === "input_image" || inside === "image_url") {
    if (!isImage) throw unsupported(dialect, reference.path, file);
    return { [inside === "image_url" ? "url" : "image_url"]: dataUrl() };
  }
  // Audio parts hold their data inline and cannot refer to a file.
  if (inside === "input_audio") throw unsupported(dialect, reference.path, file);
  return { filename: holder["filename"] ?? filename, file_data: dataUrl() };
}

/** Decodes the object that begins at `start`. */
function objectAt(body: Buffer, start: number) {
  const reader = new JsonReader(body);
  reader.position = start;
  reader.skip();
  const end = reader.position;
  if (end - start > MAX_OBJECT_BYTES) throw tooMuchElse();
  return { start, end, value: JSON.parse(body.toString("utf8", start, end)) as JsonObject };
}

/** Returns the value at a path of a parsed body. */
function at(root: JsonValue, path: readonly PathStep[]): JsonValue | undefined {
  let value: JsonValue | undefined = root;
  for (const step of path) {
    if (typeof step === "number") value = Array.isArray(value) ? value[step] : undefined;
    else value = isObject(value) ? value[step] : undefined;
  }
  return value;
}

export const paramOf = (dialect: Dialect, path: readonly PathStep[]) =>
  fieldPath(dialectErrorFamily[dialect], path);

/** An unknown, a foreign and a deleted file read alike (rule 4.16). */
export const noSuchFile = (dialect: Dialect, path: readonly PathStep[], id: string): ApiError =>
  bodyFieldError(
    "not_found",
    dialect,
    path,
    `no file with the id ${JSON.stringify(shortened(id, MOST_SHOWN_ID))}`,
  );

function unsupported(dialect: Dialect, path: readonly PathStep[], file: InlineFile): ApiError {
  const param = paramOf(dialect, path);
  return new ApiError("unsupported_content", `${param}: a file of type ${file.mimeType} cannot stand here`, {
    param,
  });
}

/** The 413 for a request that its files make too large. */
export function filesTooLarge(dialect: Dialect, path: readonly PathStep[]): ApiError {
  const param = paramOf(dialect, path);
  return new ApiError("too_large", `${param}: with its files the request is larger than ${BODY_LIMIT}`, {
    param,
  });
}

const tooMuchElse = () =>
  new ApiError("invalid_value", "file_id: the object that names the file holds too much else", {
    param: "file_id",
  });
