/** Names and types of uploaded files (rules 4.13–4.14, dialects.md §A5). Pure. */

const MAX_NAME = 255;
const UNKNOWN_TYPE = "application/octet-stream";

/** Types by extension, for uploads without a type; also the extensions of files without a name. */
const TYPES: Readonly<Record<string, string>> = {
  csv: "text/csv",
  gif: "image/gif",
  html: "text/html",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  json: "application/json",
  jsonl: "application/jsonl",
  md: "text/markdown",
  pdf: "application/pdf",
  png: "image/png",
  txt: "text/plain",
  webp: "image/webp",
};

/**
 * Returns the name under which a file is stored: the last component of a path, whatever its separator, without NUL, CR,
 * LF and other control characters, at most 255 characters. An empty one becomes `unnamed` and the type's extension.
 */
export function safeFilename(given: string | undefined, mimeType: string): string {
  const last = (given ?? "").split(/[/\\]/).at(-1) ?? "";
  const clean = last
    .toWellFormed()
    .replaceAll(/\p{Cc}/gu, "")
    .trim();
  if (clean !== "" && clean !== "." && clean !== "..") return shortened(clean);
  const extension = Object.keys(TYPES).find((name) => TYPES[name] === mimeType);
  return extension === undefined ? "unnamed" : `unnamed.${extension}`;
}

/** Keeps the extension, which tells people what the file is. */
function shortened(name: string): string {
  const characters = Array.from(name);
  if (characters.length <= MAX_NAME) return name;
  const extension = /\.[A-Za-z0-9]{1,10}$/.exec(name)?.[0] ?? "";
  return characters.slice(0, MAX_NAME - extension.length).join("") + extension;
}

/** Returns the client's type without parameters; else that of the extension; else `application/octet-stream`. */
export function mimeTypeOf(given: string | undefined, filename: string | undefined): string {
  const type = (given ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (/^[a-z0-9!#$&^_.+-]{1,64}\/[a-z0-9!#$&^_.+-]{1,64}$/.test(type) && type !== UNKNOWN_TYPE) return type;
  const extension = /\.([A-Za-z0-9]+)$/.exec(filename ?? "")?.[1]?.toLowerCase() ?? "";
  return (Object.hasOwn(TYPES, extension) ? TYPES[extension] : undefined) ?? UNKNOWN_TYPE;
}

/** Makes the `content-disposition` of a download: an ASCII name for old clients, and the exact one (RFC 6266). */
export function attachment(filename: string): string {
  const ascii = filename.replaceAll(/[^\x20-\x7e]|["\\%]/g, "_");
  const exact = encodeURIComponent(filename).replaceAll(
    /['()*!]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${ascii}"; filename*=UTF-8''${exact}`;
}
