/** The content codings that are undone as a body streams by (RFC 9110 §8.4.1), of requests, of upstreams' answers and of pages. */
import { Transform, type TransformCallback } from "node:stream";
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from "node:zlib";
import { bodyLimits } from "./body-limits.ts";

/** What a decoder gives out at once: each piece costs a turn of the event loop. */
const chunkSize = 64 * 1024;
/** A decoder keeps as much of what it gave out as the sender's window is large: not more than the largest JSON body. */
const ZSTD_WINDOW_LOG = Math.ceil(Math.log2(bodyLimits.bytes));

/** How zlib's form begins: the low half of its first byte is the method (RFC 1950 §2.2). No coder's bare form does. */
const ZLIB_METHOD = 8;
/** Codings that one answer may have, one over the other; no known server uses more. */
const MAX_CODINGS = 2;

const gzip = (): Transform => createGunzip({ chunkSize });

const decoders = {
  gzip,
  /** Another word for gzip (RFC 9110 §8.4.1.3). */
  "x-gzip": gzip,
  zstd: (windowLog: number) =>
    createZstdDecompress({ chunkSize, params: { [constants.ZSTD_d_windowLogMax]: windowLog } }),
  deflate: () => inflate(),
  br: () => createBrotliDecompress({ chunkSize }),
} as const satisfies Record<string, (zstdWindowLog: number) => Transform>;

export type ContentCoding = keyof typeof decoders;

/** Those that a request's body may have (dialects.md §A3). */
export const requestCodings: readonly ContentCoding[] = ["gzip", "x-gzip", "zstd"];
/** Those of answers; an upstream may send one although it was asked not to (rule 1.2). */
const answerCodings = Object.keys(decoders) as readonly ContentCoding[];

/** The coding that a `content-encoding` names in whatever case; undefined where it is not one of `known`. */
export const codingNamed = (name: string, known: readonly ContentCoding[]): ContentCoding | undefined =>
  known.find((one) => one === name.trim().toLowerCase());

/** Undoes a coding. `zstdWindowLog`: the largest window that a zstd decoder makes room for, as a power of two. */
export const decoderOf = (coding: ContentCoding, zstdWindowLog = ZSTD_WINDOW_LOG): Transform =>
  decoders[coding](zstdWindowLog);

/** What the `content-encoding` of an answer lists, in the order of undoing; null when not all are known, or too many. */
export function listedCodings(listed: string): readonly ContentCoding[] | null {
  const names = listed.split(",").filter((name) => !/^\s*(?:identity\s*)?$/i.test(name));
  const codings = names.flatMap((name) => codingNamed(name, answerCodings) ?? []);
  return names.length > MAX_CODINGS || codings.length < names.length ? null : codings.reverse();
}

/** Undoes what the `content-encoding` of an upstream's answer lists; null for none, or none that is known. */
export function answerDecoder(listed: string): Transform | null {
  const [last, first] = (listedCodings(listed) ?? []).map((coding) => decoderOf(coding));
  if (!last) return null;
  return first ? new DecoderChain(() => [last, first]) : last;
}

/** `deflate` means zlib's form (RFC 9110 §8.4.1.2), but servers send the bare one too: the first byte tells. */
const inflate = (): Transform =>
  new DecoderChain(([byte = 0]) => [
    (byte & 0x0f) === ZLIB_METHOD ? createInflate({ chunkSize }) : createInflateRaw({ chunkSize }),
  ]);

/**
 * Decoders, one behind the other, that are made when the first bytes are there. Node's `compose` would lose the error of one
 * that ends too early.
 */
class DecoderChain extends Transform {
  readonly #open: (bytes: Buffer) => readonly Transform[];
  #stages: readonly Transform[] = [];

  constructor(open: (bytes: Buffer) => readonly Transform[]) {
    super();
    this.#open = open;
  }

  override _transform(bytes: Buffer, _: BufferEncoding, done: TransformCallback): void {
    if (this.#stages.length === 0) this.#join(this.#open(bytes));
    // `done` is called once the bytes are decoded, which waits while nobody reads.
    this.#stages[0]?.write(bytes, done);
  }

  override _flush(done: TransformCallback): void {
    const end = this.#stages.at(-1);
    // zlib may have ended before the sender did: where bytes stand behind its text.
    if (end === undefined || end.readableEnded) return done();
    end.once("end", done);
    this.#stages[0]?.end();
  }

  override _read(size: number): void {
    this.#stages.at(-1)?.resume();
    super._read(size);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    for (const stage of this.#stages) stage.destroy();
    done(error);
  }

  #join(stages: readonly Transform[]): void {
    this.#stages = stages;
    for (const [index, stage] of stages.entries()) {
      stage.on("error", (error) => this.destroy(error));
      stages[index - 1]?.pipe(stage);
    }
    const end = stages.at(-1);
    end?.on("data", (piece: Buffer) => {
      if (!this.push(piece)) end.pause();
    });
  }
}
