/** Reads a request's body whole: bounded, decoded, with a deadline for silence. */
import type { IncomingMessage } from "node:http";
import { promisify } from "node:util";
import { gunzip, zstdDecompress } from "node:zlib";
import { ApiError } from "../lib/api-error.ts";
import { readJsonObject, type JsonObjectRead } from "../lib/json-read.ts";
import { limits } from "./limits.ts";

/** The client hung up before its request was complete: there is nobody to answer. */
export class ClientGone extends Error {
  override readonly name = "ClientGone";
}

/** Those of reference/dialects.md §A3; `x-gzip` is another word for gzip (RFC 9110 §8.4.1.3). */
const decoders = {
  gzip: promisify(gunzip),
  "x-gzip": promisify(gunzip),
  zstd: promisify(zstdDecompress),
} as const;

/**
 * The body with its content encoding removed.
 * @throws ApiError 413 beyond `maxBytes`, before or after decoding; 415 for an unknown encoding; 400 when the
 * encoded bytes are damaged; 408 when the client falls silent. @throws ClientGone when it hangs up.
 */
export function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const encoding = request.headers["content-encoding"]?.trim().toLowerCase() ?? "";
  if (encoding === "" || encoding === "identity") return readRaw(request, maxBytes);
  return readEncoded(request, maxBytes, encoding);
}

async function readEncoded(request: IncomingMessage, maxBytes: number, encoding: string): Promise<Buffer> {
  const decode = decoderOf(encoding);
  const raw = await readRaw(request, maxBytes);
  if (raw.length === 0) return raw;
  try {
    return await decode(raw, { maxOutputLength: maxBytes });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ERR_BUFFER_TOO_LARGE") throw tooLarge(maxBytes);
    throw new ApiError("invalid_request", `The request body is not valid ${encoding} data.`, { cause });
  }
}

/** The body as a JSON object. @throws ApiError as `readBody`, `requireJsonType` and `readJsonObject` do. */
export async function readJsonBody(request: IncomingMessage, maxBytes: number): Promise<JsonObjectRead> {
  requireJsonType(request);
  return readJsonObject(await readBody(request, maxBytes));
}

/** @throws ApiError 415 for a content type that is not JSON; a missing one counts as JSON. */
export function requireJsonType(request: IncomingMessage): void {
  const header = request.headers["content-type"] ?? "";
  if (header === "application/json") return;
  const type = header.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (type === "" || type === "application/json" || /^application\/[\w.-]+\+json$/.test(type)) return;
  throw new ApiError("unsupported_media_type", "The request's content type must be application/json.");
}

function decoderOf(encoding: string): (typeof decoders)[keyof typeof decoders] {
  if (Object.hasOwn(decoders, encoding)) return decoders[encoding as keyof typeof decoders];
  throw unknownEncoding();
}

export const unknownEncoding = () =>
  new ApiError(
    "unsupported_media_type",
    "The request's content encoding is not supported; use gzip, zstd or none.",
  );

export const tooLarge = (maxBytes: number) =>
  new ApiError("too_large", `The request body is larger than ${maxBytes / (1024 * 1024)} MiB.`);

function readRaw(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const declared = Number(request.headers["content-length"] ?? 0);
  if (declared > maxBytes) {
    // Node reads and drops the rest after the answer, so that a client that is still sending gets to see it.
    reject(tooLarge(maxBytes));
    return promise;
  }
  const chunks: Buffer[] = [];
  let length = 0;
  const idle = setTimeout(
    () => finish(() => reject(new ApiError("request_timeout", "The request body did not arrive in time."))),
    limits.bodyIdleMs,
  );
  const finish = (settle: () => void) => {
    clearTimeout(idle);
    request.removeListener("data", onData);
    request.removeListener("end", onEnd);
    request.removeListener("close", onClose);
    settle();
  };
  const onData = (chunk: Buffer) => {
    length += chunk.length;
    if (length > maxBytes) {
      chunks.length = 0;
      finish(() => reject(tooLarge(maxBytes)));
      request.resume();
      return;
    }
    chunks.push(chunk);
    idle.refresh();
  };
  const onEnd = () => {
    const [only] = chunks;
    finish(() => resolve(chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks, length)));
  };
  const onClose = () =>
    finish(() => reject(new ClientGone("the client left before its request was complete")));
  request.on("data", onData);
  request.on("end", onEnd);
  request.on("close", onClose);
  request.on("error", onClose);
  return promise;
}
