import { promisify } from "node:util";
import { brotliDecompress, constants, gunzip, inflate, inflateRaw, zstdDecompress } from "node:zlib";
import type { Dispatcher } from "undici";

export type Body =
  | { readonly kind: "bytes"; readonly bytes: Buffer }
  | { readonly kind: "failed"; readonly detail: string };

/** A body that grows more than this many times while decompressing is a bomb; small ones may. */
const MAX_RATIO = 200;
const RATIO_FREE_BYTES = 1024 * 1024;
const MAX_CODINGS = 2;
/** RFC 9659: browsers refuse larger windows, and so do we before allocating them. */
const MAX_ZSTD_WINDOW_LOG = 23;

/** Enough of an unwanted body to keep the connection for the next request; longer ones close it. */
const DISCARDED_BYTES = 16 * 1024;

/** Lets go of a body that nobody wants, without waiting for it; its errors are nobody's either. */
export function discardBody(body: BodyReadable): void {
  body.on("error", () => undefined);
  body.dump({ limit: DISCARDED_BYTES }).catch(() => undefined);
}

type BodyReadable = Dispatcher.ResponseData["body"];

export const ACCEPT_ENCODING = "gzip, deflate, br, zstd";

/**
 * Reads a body to its end and undoes its content codings. Zlib works on its own threads, so a bomb costs the event
 * loop nothing. `cut` returns what came before the limit instead of failing (robots.txt).
 */
export async function readPageBody(
  body: AsyncIterable<Buffer>,
  encoding: string,
  maxBytes: number,
  cut = false,
): Promise<Body> {
  const codings = encoding
    .toLowerCase()
    .split(",")
    .map((coding) => coding.trim())
    .filter((coding) => coding !== "" && coding !== "identity");
  if (codings.length > MAX_CODINGS) return { kind: "failed", detail: "too many content codings" };
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    size += chunk.length;
    if (size <= maxBytes) continue;
    // Leaving the loop destroys the stream.
    if (!cut || codings.length > 0) return { kind: "failed", detail: "body too large" };
    return { kind: "bytes", bytes: Buffer.concat(chunks).subarray(0, maxBytes) };
  }
  let bytes = Buffer.concat(chunks);
  for (const coding of codings.reverse()) {
    const decode = decoders[coding];
    if (decode === undefined) return { kind: "failed", detail: "unknown content coding" };
    const limit = Math.min(maxBytes, Math.max(RATIO_FREE_BYTES, bytes.length * MAX_RATIO));
    try {
      bytes = await decode(bytes, limit);
    } catch {
      return { kind: "failed", detail: "content coding damaged or body too large" };
    }
  }
  return { kind: "bytes", bytes };
}

type Decoder = (bytes: Buffer, maxOutputLength: number) => Promise<Buffer<ArrayBuffer>>;

const gzip: Decoder = async (bytes, maxOutputLength) => await promisify(gunzip)(bytes, { maxOutputLength });

const decoders: Readonly<Record<string, Decoder | undefined>> = {
  __proto__: null as never,
  gzip,
  "x-gzip": gzip,
  // Meant is zlib's form, but servers send the bare one too.
  deflate: async (bytes, maxOutputLength) =>
    ((bytes[0] ?? 0) & 0x0f) === 8
      ? await promisify(inflate)(bytes, { maxOutputLength })
      : await promisify(inflateRaw)(bytes, { maxOutputLength }),
  br: async (bytes, maxOutputLength) => await promisify(brotliDecompress)(bytes, { maxOutputLength }),
  zstd: async (bytes, maxOutputLength) =>
    await promisify(zstdDecompress)(bytes, {
      maxOutputLength,
      params: { [constants.ZSTD_d_windowLogMax]: MAX_ZSTD_WINDOW_LOG },
    }),
};
