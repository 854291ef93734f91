/**
 * `file_id` in images and documents: the organization's own files take the place of their ids before anything
 * else looks at the request, on every path (rules 2.10, 4.17). Our ids never go upstream; an id that is unknown or
 * another organization's stays and is refused with its path. Sizes are judged before a byte is read.
 */
import { isObject } from "../dialects/cursor.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { JsonObject, JsonValue } from "../dialects/messages/types.ts";
import type { StoredFile } from "../files/catalog.ts";
import type { FileStore } from "../files/file-store.ts";
import { ApiError } from "../lib/api-error.ts";
import { bodyLimits } from "../lib/body-limits.ts";
import { fieldPath, type PathStep } from "../lib/field-path.ts";
import { JsonReader } from "../lib/json-reader.ts";
import { type Edit, splice } from "../lib/json-splice.ts";
import type { InferenceCall } from "./call.ts";
import { look } from "./look.ts";
import type { Reference } from "./look-content.ts";

/** Different files of one request: all are looked up at once and read one by one. */
const MAX_FILES = 2_000;
/** An object that names a file holds little else; a larger one would be decoded for it. */
const MAX_OBJECT_BYTES = 8 * 1024;

type Serve = (call: InferenceCall) => Promise<void>;

/** `serve`, with the organization's files in place of their ids. */
export const withFiles =
  (serve: Serve, files: FileStore): Serve =>
  (call) =>
    mayNameFiles(call.body) ? inlinedFirst(call, serve, files) : serve(call);

/** `file_id` as it is or partly escaped. Other escapes are common, those of letters are not: then it is looked at. */
const mayNameFiles = (body: Buffer): boolean =>
  body.includes('"file_id"') ||
  (body.includes("\\u00") && (body.includes("\\u005") || body.includes("\\u006")));

async function inlinedFirst(call: InferenceCall, serve: Serve, files: FileStore): Promise<void> {
  const body = await inlined(call.dialect, call.body, call.principal.organizationId, files);
  await serve(body === call.body ? call : { ...call, body });
}

async function inlined(
  dialect: Dialect,
  given: Buffer,
  organizationId: string,
  files: FileStore,
): Promise<Buffer> {
  const { body, content } = look(dialect, given);
  const references = content.references.filter(({ kind }) => kind === "file");
  // What a hosted tool wrote, or reads (`container_upload`), is refused whatever it names.
  if (references.length === 0 || content.hosted.length > 0) return given;
  // Those that are not among them are refused later, with the field's path.
  const held = await files.find(organizationId, differentIds(dialect, references));
  let size = body.length;
  for (const { id, path } of references) {
    size += Math.ceil(((held.get(id)?.sizeBytes ?? 0) * 4) / 3);
    if (size > bodyLimits.bytes) throw tooLarge(dialect, path);
  }
  const root = JSON.parse(body.toString("utf8")) as JsonObject;
  const edits: Edit[] = [];
  const contents = new Map<string, Buffer>();
  for (const reference of references) {
    const file = held.get(reference.id);
    // Those in odd places stay, and are refused.
    if (file === undefined || reference.objectStart < 0) continue;
    // Objects within one another: both cannot be written anew.
    if (reference.objectStart < (edits.at(-1)?.end ?? 0)) throw tooMuchElse();
    const bytes = contents.get(file.id) ?? (await readWhole(files, file));
    contents.set(file.id, bytes);
    edits.push(editOf(dialect, body, root, reference, file, bytes));
  }
  const whole = splice(body, edits);
  if (whole.length > bodyLimits.bytes) throw tooLarge(dialect, references[0]?.path ?? []);
  return whole;
}

function differentIds(dialect: Dialect, references: readonly Reference[]): string[] {
  const ids = new Set<string>();
  for (const { id, path } of references) {
    ids.add(id);
    if (ids.size > MAX_FILES) throw tooMany(dialect, path);
  }
  return [...ids];
}

async function readWhole(files: FileStore, file: StoredFile): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of files.read(file)) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** The object that names the file, written anew with the file itself. */
function editOf(
  dialect: Dialect,
  body: Buffer,
  root: JsonObject,
  reference: Reference,
  file: StoredFile,
  bytes: Buffer,
): Edit {
  const { start, end, value } = objectAt(body, reference.objectStart);
  const { file_id: _id, ...rest } = value;
  const text = JSON.stringify({ ...rest, ...contentOf(dialect, root, reference, value, file, bytes) });
  return { start, end, text };
}

function contentOf(
  dialect: Dialect,
  root: JsonObject,
  reference: Reference,
  holder: JsonObject,
  file: StoredFile,
  bytes: Buffer,
): JsonObject {
  const { mimeType, filename } = file;
  const dataUrl = () => `data:${mimeType};base64,${bytes.toString("base64")}`;
  const isImage = mimeType.startsWith("image/");
  if (dialect === "messages") {
    const block = at(root, reference.path.slice(0, -2));
    const wanted = isObject(block) ? block["type"] : undefined;
    const isPdf = mimeType === "application/pdf";
    if ((wanted === "image" && isImage) || (wanted === "document" && isPdf)) {
      return { type: "base64", media_type: mimeType, data: bytes.toString("base64") };
    }
    if (wanted === "document" && mimeType.startsWith("text/")) {
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
  // Sound is sent as it is, and has no place for a file.
  if (inside === "input_audio") throw unsupported(dialect, reference.path, file);
  return { filename: holder["filename"] ?? filename, file_data: dataUrl() };
}

/** The object that begins at `start`, decoded. */
function objectAt(body: Buffer, start: number) {
  const reader = new JsonReader(body);
  reader.position = start;
  reader.skip();
  const end = reader.position;
  if (end - start > MAX_OBJECT_BYTES) throw tooMuchElse();
  return { start, end, value: JSON.parse(body.toString("utf8", start, end)) as JsonObject };
}

/** What stands at a path of a parsed body. */
function at(root: JsonValue, path: readonly PathStep[]): JsonValue | undefined {
  let value: JsonValue | undefined = root;
  for (const step of path) {
    if (typeof step === "number") value = Array.isArray(value) ? value[step] : undefined;
    else value = isObject(value) ? value[step] : undefined;
  }
  return value;
}

const paramOf = (dialect: Dialect, path: readonly PathStep[]) =>
  fieldPath(dialect === "messages" ? "messages" : "openai", path);

function unsupported(dialect: Dialect, path: readonly PathStep[], file: StoredFile): ApiError {
  const param = paramOf(dialect, path);
  return new ApiError("unsupported_content", `${param}: a file of type ${file.mimeType} cannot stand here`, {
    param,
  });
}

function tooLarge(dialect: Dialect, path: readonly PathStep[]): ApiError {
  const param = paramOf(dialect, path);
  return new ApiError("too_large", `${param}: with its files the request is larger than 32 MiB`, { param });
}

function tooMany(dialect: Dialect, path: readonly PathStep[]): ApiError {
  const param = paramOf(dialect, path);
  return new ApiError("invalid_value", `${param}: a request can name at most ${MAX_FILES} files`, { param });
}

const tooMuchElse = () =>
  new ApiError("invalid_value", "file_id: the object that names the file holds too much else", {
    param: "file_id",
  });
