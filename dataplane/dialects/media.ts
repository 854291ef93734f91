/** Images and documents between their forms: base64 sources in the hub, data URLs in Chat and Responses. */
import { type Cursor, fieldError } from "./cursor.ts";
import type { DocumentBlock, DocumentSource, ImageBlock, ImageSource } from "./messages/types.ts";

/** What every dialect takes as an image (dialects.md §D1). */
const imageTypes = ["image/jpeg", "image/png", "image/gif", "image/webp"] as const;

/** The registered name of a media type: many clients write `image/jpg`, which vendors refuse. */
export const registeredType = (mediaType: string): string =>
  mediaType === "image/jpg" ? "image/jpeg" : mediaType;

/** Whether a document of this type is read as text, so that every model can read it. */
export const isTextType = (mediaType: string): boolean =>
  mediaType.startsWith("text/") || mediaType === "application/json";

/** `data:<type>;base64,<data>`; null for anything else. */
function parseDataUrl(url: string): { readonly mediaType: string; readonly data: string } | null {
  const comma = url.indexOf(",");
  if (!url.startsWith("data:") || comma < 0) return null;
  const [mediaType = "", ...parameters] = url.slice("data:".length, comma).toLowerCase().split(";");
  if (parameters.at(-1)?.trim() !== "base64") return null;
  return { mediaType: registeredType(mediaType.trim()), data: url.slice(comma + 1) };
}

export const dataUrl = (mediaType: string, data: string): string => `data:${mediaType};base64,${data}`;

const isHttpUrl = (url: string): boolean => /^https?:\/\/[^\s]+$/i.test(url) && URL.canParse(url);

/** An image's source from the URL in field `key`. @throws ApiError naming the field. */
export function readImageUrl(part: Cursor, key: string): ImageSource {
  const url = part.requiredText(key);
  if (isHttpUrl(url)) return { type: "url", url };
  const parsed = parseDataUrl(url);
  if (parsed === null) return part.fail(key, "expected an https URL or a base64 data URL");
  checkImageType(part, key, parsed.mediaType);
  return { type: "base64", media_type: parsed.mediaType, data: parsed.data };
}

/** @throws ApiError for what is not one of the four image types. */
export function checkImageType(part: Cursor, key: string, mediaType: string): void {
  if (!imageTypes.some((type) => type === mediaType))
    part.fail(key, `the image type must be one of: ${imageTypes.join(", ")}`);
}

/**
 * A document's source from `file_data`: a data URL, or bare base64 whose type the file name tells.
 * Text becomes a text source, so that every model can read it. @throws ApiError naming the field.
 */
export function readFileData(file: Cursor, filename: string | undefined): DocumentSource {
  const parsed = parseFileData(file.requiredText("file_data"), filename);
  if (parsed === null) return file.fail("file_data", "expected a base64 data URL");
  const { mediaType, data } = parsed;
  if (mediaType === "application/pdf") return { type: "base64", media_type: mediaType, data };
  if (isTextType(mediaType)) return { type: "text", media_type: "text/plain", data: decoded(data) };
  // The content may have replaced a `file_id`, so the error names the object that holds either.
  const problem = `files of type ${mediaType || "unknown"} cannot be read`;
  throw fieldError(file.style, file.path, problem, "unsupported_content");
}

/** Returns the text of a file in `file_data`; null when the file is no text. */
export function textOfFile(fileData: string, filename: string | undefined): string | null {
  const parsed = parseFileData(fileData, filename);
  return parsed !== null && isTextType(parsed.mediaType) ? decoded(parsed.data) : null;
}

/** null: a data URL without base64. */
function parseFileData(text: string, filename: string | undefined): ReturnType<typeof parseDataUrl> {
  if (text.startsWith("data:")) return parseDataUrl(text);
  return { mediaType: typeByName(filename), data: text };
}

const decoded = (base64: string): string => Buffer.from(base64, "base64").toString("utf8");

const typeByName = (filename: string | undefined): string =>
  filename !== undefined && /\.(txt|md|csv|json|xml|html?)$/i.test(filename)
    ? "text/plain"
    : "application/pdf";

/** A file URL as a document's source. @throws ApiError naming the field. */
export function readFileUrl(file: Cursor): DocumentSource {
  const url = file.requiredText("file_url");
  return isHttpUrl(url) ? { type: "url", url } : file.fail("file_url", "expected an https URL");
}

const details = new WeakMap<ImageBlock, string>();

/** Remembers the client's `detail` of an image, which Messages has no field for. */
export function withDetail(image: ImageBlock, detail: string | undefined): ImageBlock {
  if (detail !== undefined) details.set(image, detail);
  return image;
}

export const detailOf = (image: ImageBlock): string | undefined => details.get(image);

/** Returns the file name of a PDF, for a dialect that wants one and reads the file's type from its ending. */
export function fileName(block: DocumentBlock): string {
  const title = block.title ?? "";
  if (title === "") return "document.pdf";
  return /\.pdf$/i.test(title) ? title : `${title}.pdf`;
}

/** Returns the texts to write before a document: its title, unless a file name beside its content holds it, and its context. */
export const textsBefore = ({ source, title, context }: DocumentBlock): string[] =>
  [source.type === "base64" ? null : title, context].flatMap((text) =>
    typeof text === "string" && text !== "" ? [text] : [],
  );
