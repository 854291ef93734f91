/** Finds a page's kind by its content type and, without one, by its first bytes (service.md "Opening pages"). Pure. */
export interface ContentType {
  /** `null`: the header is missing, and the body decides. */
  readonly kind: "html" | "xml" | "text" | "json" | "pdf" | "unsupported" | null;
  readonly charset: string | null;
}

/** Reads a `content-type` header: the kind of page, and the charset that it names, if any. */
export function readContentType(header: string | undefined): ContentType {
  if (header === undefined || header.trim() === "") return { kind: null, charset: null };
  // Of several types the last one counts (Fetch, "extract a MIME type").
  const last = header.split(",").findLast((type) => type.includes("/")) ?? header;
  const [essence = "", ...parameters] = last.split(";");
  const charset = parameters
    .map((parameter) => /^\s*charset\s*=\s*"?([^"\s]{1,40})"?\s*$/i.exec(parameter)?.[1])
    .find((label) => label !== undefined);
  return { kind: kindOf(essence.trim().toLowerCase()), charset: charset ?? null };
}

function kindOf(essence: string): ContentType["kind"] {
  if (essence === "text/html" || essence === "application/xhtml+xml") return "html";
  if (essence === "application/json" || essence === "text/json" || /^[\w.-]+\/[\w.-]+\+json$/.test(essence))
    return "json";
  if (essence === "application/pdf") return "pdf";
  if (essence === "text/xml") return "xml";
  return essence.startsWith("text/") ? "text" : "unsupported";
}

/** Finds the kind of a body without a content type by its first bytes. */
export function sniffKind(bytes: Buffer): "html" | "text" | "pdf" | "unsupported" {
  if (isPdf(bytes)) return "pdf";
  const start = bytes.subarray(0, 1024);
  if (start.includes(0)) return "unsupported";
  return /^\s*<(?:!doctype|html|head|body|!--|h1|p|div)\b/i.test(start.toString("latin1")) ? "html" : "text";
}

/** Whether it is a PDF; like PDF readers it looks for the mark in the first KiB. */
export const isPdf = (bytes: Buffer) => bytes.subarray(0, 1024).includes("%PDF-");
