import { pipeline } from "node:stream";
import type { Dispatcher } from "undici";
import { decoderOf, listedCodings, type ContentCoding } from "../../lib/content-coding.ts";

export type Body =
  | { readonly kind: "bytes"; readonly bytes: Buffer }
  | { readonly kind: "failed"; readonly detail: string };

/** A body that grows more than this many times while decompressing is a bomb; one within `RATIO_FREE_BYTES` may. */
const MAX_RATIO = 200;
const RATIO_FREE_BYTES = 1024 * 1024;
/** RFC 9659: browsers refuse larger windows, and so do we before allocating them. */
const MAX_ZSTD_WINDOW_LOG = 23;

/** Bytes of an unwanted body that are read to keep the connection for the next request; longer bodies close it. */
const DISCARDED_BYTES = 16 * 1024;

/** Discards an unwanted body, or the rest of one, without waiting for it; its errors are ignored. */
export function discardBody(body: BodyReadable): void {
  body.on("error", () => undefined);
  // The rest of a partly read body may never come, so it is not waited for.
  if (body.readableDidRead) body.destroy();
  else body.dump({ limit: DISCARDED_BYTES }).catch(() => undefined);
}

type BodyReadable = Dispatcher.ResponseData["body"];

export const ACCEPT_ENCODING = "gzip, deflate, br, zstd";

interface PageBodyLimits {
  /** Most bytes, as received and after each decoding. */
  readonly maxBytes: number;
  /** Whether the bytes before the limit are enough (robots.txt). */
  readonly cut?: boolean;
  /** Called with the length of every piece before it is kept; an error that it throws ends the reading. */
  readonly take?: (bytes: number) => void;
}

/**
 * Reads a body to its end and undoes its content codings as it comes. Decoded bytes are counted before they are kept; a few
 * encoded pieces and each decoder's window are held besides. Zlib has its own threads, so a bomb costs the event loop nothing.
 * @throws when the connection breaks, or whatever `take` throws.
 */
export async function readPageBody(
  body: AsyncIterable<Buffer>,
  encoding: string,
  { maxBytes, cut = false, take }: PageBodyLimits,
): Promise<Body> {
  const codings = listedCodings(encoding);
  if (codings === null) return { kind: "failed", detail: "content codings not known" };
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    // Leaving the loop destroys the stream.
    for await (const piece of decoded(body, codings, maxBytes)) {
      take?.(piece.length);
      pieces.push(piece);
      size += piece.length;
      if (size <= maxBytes) continue;
      if (!cut) throw new BodyTooLarge();
      break;
    }
  } catch (error) {
    if (error instanceof BodyTooLarge) return { kind: "failed", detail: "body too large" };
    if (error instanceof CodingDamaged) return { kind: "failed", detail: "content coding damaged" };
    throw error;
  }
  const bytes = Buffer.concat(pieces, Math.min(size, maxBytes));
  return { kind: "bytes", bytes };
}

class BodyTooLarge extends Error {
  override readonly name = "BodyTooLarge";
}

class CodingDamaged extends Error {
  override readonly name = "CodingDamaged";
}

const decoded = (body: AsyncIterable<Buffer>, codings: readonly ContentCoding[], maxBytes: number) =>
  codings.reduce<AsyncIterable<Buffer>>((encoded, coding) => undone(encoded, coding, maxBytes), body);

/** Undoes one coding. @throws BodyTooLarge when too many bytes go in, or they grow too much; CodingDamaged; what `encoded` throws. */
async function* undone(
  encoded: AsyncIterable<Buffer>,
  coding: ContentCoding,
  maxBytes: number,
): AsyncGenerator<Buffer> {
  let read = 0;
  let sourceFailed = false;
  async function* counted(): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of encoded) {
        read += chunk.length;
        if (read > maxBytes) throw new BodyTooLarge();
        yield chunk;
      }
    } catch (error) {
      sourceFailed = true;
      throw error;
    }
  }
  const decoder = decoderOf(coding, MAX_ZSTD_WINDOW_LOG);
  // `pipeline` passes the source's error to the decoder; reading the decoder throws it.
  pipeline(counted(), decoder, () => undefined);
  let size = 0;
  try {
    for await (const piece of decoder as AsyncIterable<Buffer>) {
      size += piece.length;
      yield piece;
    }
  } catch (error) {
    throw sourceFailed ? error : new CodingDamaged();
  }
  if (size > Math.max(RATIO_FREE_BYTES, read * MAX_RATIO)) throw new BodyTooLarge();
}
