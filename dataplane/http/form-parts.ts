/** The parts of a multipart form (RFC 7578), in order, from a body that may have been decoded. */
import { Dicer } from "@fastify/busboy";
import { Readable } from "node:stream";
import { MIMEType } from "node:util";
import { ApiError } from "../lib/api-error.ts";
import { feed } from "./body-stream.ts";

export interface FormPart {
  /** Name of the field; empty when the part has none. */
  readonly name: string;
  readonly filename: string | undefined;
  /** undefined when the part has none. */
  readonly contentType: string | undefined;
  readonly bytes: AsyncIterable<Buffer>;
}

/** Values of headers by name in lower case; each character of a value is a byte. */
type PartHeaders = Readonly<Record<string, readonly string[] | undefined>>;

const MAX_HEADERS = 50;
/** Bytes that are parsed at once while new parts begin: the headers of some fifty parts. */
const SLICE_BYTES = 4 * 1024;
/** RFC 2046 §5.1.1. */
const MAX_BOUNDARY = 70;

/**
 * Each part must be read to its end before the next one is asked for. Parts that are not fields of a form are left out; what
 * follows the form is not read.
 * @param contentType of the form; without a boundary it is malformed.
 * @throws ApiError 400 for a form that is malformed, incomplete or has more than `most` parts; and what `body` throws.
 */
export async function* formParts(
  contentType: MIMEType,
  body: AsyncIterable<Buffer>,
  most: number,
): AsyncGenerator<FormPart> {
  const boundary = contentType.params.get("boundary");
  if (boundary === null || boundary.length > MAX_BOUNDARY) throw incomplete();
  const parser = new Dicer({ boundary, maxHeaderPairs: MAX_HEADERS });
  const parts = new Readable({ objectMode: true, read: () => {} });
  let count = 0;
  let last: Readable | undefined;
  const fail = (error: Error) => {
    // Only the last part can be incomplete: its reader gets the error, and so does the reader of `parts`.
    last?.destroy(error);
    parts.destroy(error);
  };
  parser.on("part", (stream) => {
    last = stream;
    count += 1;
    if (count > most) {
      fail(new ApiError("invalid_request", "The form has too many fields."));
      // A packet may hold a thousand more parts: without a listener the parser drops them.
      parser.removeAllListeners("part");
    }
    // Without a listener an error of a part that nobody reads would end the process.
    stream.on("error", () => {});
    stream.once("header", (headers) => {
      const part = partOf(headers as PartHeaders, stream);
      if (part === null) stream.resume();
      else parts.push(part);
    });
  });
  parser.once("finish", () => parts.push(null));
  // The parser's own errors do not destroy it; `feed` destroys it with the errors of the body.
  parser.on("error", (error) => fail(parser.errored ?? incomplete(error)));
  feed(
    slicedWhilePartsBegin(body, () => count),
    parser,
  ).catch(fail);
  try {
    for await (const part of parts) yield part as FormPart;
  } finally {
    parser.destroy();
  }
}

/**
 * Cuts the body into small slices while new parts begin: a packet may hold a thousand parts, and a form of too many is to end
 * early.
 */
async function* slicedWhilePartsBegin(
  body: AsyncIterable<Buffer>,
  parts: () => number,
): AsyncGenerator<Buffer> {
  let before = -1;
  for await (const chunk of body) {
    for (let at = 0; at < chunk.length;) {
      const now = parts();
      const end = now === before ? chunk.length : at + SLICE_BYTES;
      before = now;
      yield chunk.subarray(at, end);
      at = end;
    }
  }
}

/** null: the part is not a field of a form. */
function partOf(headers: PartHeaders, bytes: Readable): FormPart | null {
  const disposition = headers["content-disposition"]?.[0] ?? "";
  const parameters = dispositionParameters(disposition);
  if (parameters === null) return null;
  const type = headers["content-type"]?.[0]?.trim();
  return {
    name: parameters.get("name") ?? "",
    filename: extended(parameters.get("filename*")) ?? parameters.get("filename"),
    contentType: type === "" ? undefined : type,
    bytes,
  };
}

/** A disposition has the syntax of a media type, except for the slash. */
function dispositionParameters(disposition: string): { get(name: string): string | undefined } | null {
  // Browsers leave a backslash in a path as it is; control characters would cost the parameter its value.
  const text = disposition
    .trim()
    .replaceAll(/\\["\\]?/g, (escape) => (escape.length === 2 ? escape : "\\\\"))
    .replaceAll(/[^\t -~\x80-\xff]/g, "");
  // MIMEType takes quadratic time for blanks within a subtype: only `form-data` gets there.
  if (!/^form-data[\t ]*(?:;|$)/i.test(text)) return null;
  try {
    const { params } = new MIMEType(`multipart/${text}`);
    return {
      get: (name) => {
        const value = params.get(name);
        return value === null ? undefined : Buffer.from(value, "latin1").toString();
      },
    };
  } catch {
    return null;
  }
}

/** A name as older clients write it (RFC 8187); undefined for any other form. */
function extended(value: string | undefined): string | undefined {
  const encoded = /^utf-8'[^']*'(.*)$/i.exec(value ?? "")?.[1];
  try {
    return encoded === undefined ? undefined : decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}

const incomplete = (cause?: Error): ApiError =>
  new ApiError("invalid_request", "The request body is not a complete multipart form.", { cause });
