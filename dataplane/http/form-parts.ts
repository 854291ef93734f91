/** The parts of a multipart form (RFC 7578), in order, from a body that may have been decoded. */
import { Dicer } from "@fastify/busboy";
import { Readable } from "node:stream";
import { MIMEType } from "node:util";
import { ApiError } from "../lib/api-error.ts";
import { feed } from "./body-stream.ts";

export interface FormPart {
  /** Of its field; empty when the part says none. */
  readonly name: string;
  readonly filename: string | undefined;
  /** undefined when it says none. */
  readonly contentType: string | undefined;
  readonly bytes: AsyncIterable<Buffer>;
}

/** Each name of a header in lower case with its values, whose characters are bytes. */
type PartHeaders = Readonly<Record<string, readonly string[] | undefined>>;

const MAX_HEADERS = 50;
/** Bytes that are parsed at once while new parts begin: room for the headers of some fifty. */
const SLICE_BYTES = 4 * 1024;
/** RFC 2046 §5.1.1. */
const MAX_BOUNDARY = 70;

/**
 * Each part is read to its end before the next one is asked for. Parts that are no fields of a form are left out; what
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
    // Only the last part can be incomplete: its reader is told, and so is whoever waits for a further part.
    last?.destroy(error);
    parts.destroy(error);
  };
  parser.on("part", (stream) => {
    last = stream;
    count += 1;
    if (count > most) {
      fail(new ApiError("invalid_request", "The form has too many fields."));
      // A packet may hold a thousand more: the parser drops what nobody asks for.
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
  // The parser's own errors do not destroy it; `feed` destroys it with the body's.
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

/** A packet may hold a thousand parts: while new ones come, little is handed on at once, so that a form of too many ends early. */
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

/** null: no field of a form. */
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

/** A disposition has a media type's syntax but for the slash. */
function dispositionParameters(disposition: string): { get(name: string): string | undefined } | null {
  // Browsers leave a backslash in a path as it is; control characters would cost the parameter its value.
  const text = disposition
    .trim()
    .replaceAll(/\\["\\]?/g, (escape) => (escape.length === 2 ? escape : "\\\\"))
    .replaceAll(/[^\t -~\x80-\xff]/g, "");
  // MIMEType takes quadratic time for blanks within a subtype: no other one gets there.
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
