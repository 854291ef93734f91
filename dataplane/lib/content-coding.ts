/**
 * The content codings that are undone as a body streams by (RFC 9110 §8.4.1), of requests and of upstreams' answers.
 * Pages, which come whole and from strangers, are decoded in one call each (tools/web-fetch/body.ts).
 */
import type { Transform } from "node:stream";
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createZstdDecompress,
} from "node:zlib";
import { bodyLimits } from "./body-limits.ts";

/** What a decoder gives out at once: each piece costs a turn of the event loop. */
const chunkSize = 64 * 1024;
/** A decoder keeps as much of what it gave out as the sender's window is large: not more than the largest JSON body. */
const ZSTD_WINDOW_LOG = Math.ceil(Math.log2(bodyLimits.bytes));

const gzip = (): Transform => createGunzip({ chunkSize });

const decoders = {
  gzip,
  /** Another word for gzip (RFC 9110 §8.4.1.3). */
  "x-gzip": gzip,
  zstd: () =>
    createZstdDecompress({ chunkSize, params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG } }),
  deflate: () => createInflate({ chunkSize }),
  br: () => createBrotliDecompress({ chunkSize }),
} as const satisfies Record<string, () => Transform>;

type ContentCoding = keyof typeof decoders;

/** Those that a request's body may have (dialects.md §A3). */
export const requestCodings: readonly ContentCoding[] = ["gzip", "x-gzip", "zstd"];
/** Those in which an upstream may answer although it was asked not to (rule 1.2). */
export const answerCodings = Object.keys(decoders) as readonly ContentCoding[];

/** Undoes the coding that a `content-encoding` names in whatever case; null where it is not one of `known`. */
export function decoderOf(coding: string, known: readonly ContentCoding[]): Transform | null {
  const name = coding.trim().toLowerCase();
  const found = known.find((one) => one === name);
  return found === undefined ? null : decoders[found]();
}
