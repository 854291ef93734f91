/** Streaming decoders of content codings (RFC 9110 §8.4.1) for request bodies, upstream answers and pages. */
import { Transform, type TransformCallback } from "node:stream";
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
  type ZstdDecompress,
} from "node:zlib";
import { bodyLimits } from "./body-limits.ts";

/** Size of a decoder's output chunks: each costs a turn of the event loop. */
const chunkSize = 64 * 1024;
/** Largest zstd window: a decoder keeps that much of its output, and no window need exceed the largest JSON body. */
const ZSTD_WINDOW_LOG = Math.ceil(Math.log2(bodyLimits.bytes));

/**
 * How many frames within its pieces zstd data may have: so many, and one for so many bytes of its contents. Each costs a turn of
 * the event loop, and one of nothing has nine bytes. Encoders that make several give each far more contents.
 */
const FREE_FRAMES = 64;
const CONTENTS_OF_FRAME = 16 * 1024;

/** Low half of the first byte of a zlib stream: the method (RFC 1950 §2.2). No encoder's raw deflate stream begins so. */
const ZLIB_METHOD = 8;
/** Most codings applied to one answer; no known server uses more. */
const MAX_CODINGS = 2;

const gzip = (): Transform => createGunzip({ chunkSize });

const decoders = {
  gzip,
  /** Another word for gzip (RFC 9110 §8.4.1.3). */
  "x-gzip": gzip,
  zstd: (windowLog: number) =>
    acrossFrames(createZstdDecompress({ chunkSize, params: { [constants.ZSTD_d_windowLogMax]: windowLog } })),
  deflate: () => inflate(),
  br: () => createBrotliDecompress({ chunkSize }),
} as const satisfies Record<string, (zstdWindowLog: number) => Transform>;

export type ContentCoding = keyof typeof decoders;

/** Codings of request bodies (dialects.md §A3). */
export const requestCodings: readonly ContentCoding[] = ["gzip", "x-gzip", "zstd"];
/** Codings of answers; an upstream may use one although it was asked not to (rule 1.2). */
const answerCodings = Object.keys(decoders) as readonly ContentCoding[];

/** The coding that a `content-encoding` names, case-insensitively; undefined when it is not one of `known`. */
export const codingNamed = (name: string, known: readonly ContentCoding[]): ContentCoding | undefined =>
  known.find((one) => one === name.trim().toLowerCase());

/** Makes the decoder of a coding. `zstdWindowLog`: log2 of the largest window that a zstd decoder accepts. */
export const decoderOf = (coding: ContentCoding, zstdWindowLog = ZSTD_WINDOW_LOG): Transform =>
  decoders[coding](zstdWindowLog);

/** The codings in an answer's `content-encoding`, in decoding order; null when one is unknown or there are too many. */
export function listedCodings(listed: string): readonly ContentCoding[] | null {
  const names = listed.split(",").filter((name) => !/^\s*(?:identity\s*)?$/i.test(name));
  const codings = names.flatMap((name) => codingNamed(name, answerCodings) ?? []);
  return names.length > MAX_CODINGS || codings.length < names.length ? null : codings.reverse();
}

/** Makes the decoder for an upstream answer's `content-encoding`; null when it lists no coding or an unknown one. */
export function answerDecoder(listed: string): Transform | null {
  const [last, first] = (listedCodings(listed) ?? []).map((coding) => decoderOf(coding));
  if (!last) return null;
  return first ? new DecoderChain(() => [last, first]) : last;
}

/**
 * Lets a decoder read all frames of zstd data, which may be several (RFC 8878 §3.1). Node's takes the end of one within a piece
 * for the end of all and drops the rest of the piece unseen, whatever it is: it then pushes null, and `bytesWritten` has grown by
 * what it took. Its context begins a next frame by itself, as it does where pieces end with frames. Returns the same decoder.
 */
function acrossFrames(decoder: ZstdDecompress): ZstdDecompress {
  const push = decoder.push.bind(decoder);
  const transform = decoder._transform.bind(decoder);
  let contents = 0;
  let frames = 0;
  let isReading = false;
  let hasEndedFrame = false;
  decoder.push = (piece: Buffer | null) => {
    contents += piece?.length ?? 0;
    if (piece !== null || !isReading) return push(piece);
    hasEndedFrame = true;
    return true;
  };
  decoder._transform = (bytes: Buffer, encoding, done) => {
    const before = decoder.bytesWritten;
    isReading = true;
    transform(bytes, encoding, (error) => {
      isReading = false;
      if (error || !hasEndedFrame) return done(error);
      hasEndedFrame = false;
      frames += 1;
      if (frames > FREE_FRAMES + contents / CONTENTS_OF_FRAME) return done(new Error("too many zstd frames"));
      decoder._transform(bytes.subarray(decoder.bytesWritten - before), encoding, done);
    });
  };
  return decoder;
}

/** `deflate` means the zlib format (RFC 9110 §8.4.1.2), but some servers send raw deflate: the first byte tells which. */
const inflate = (): Transform =>
  new DecoderChain(([byte = 0]) => [
    (byte & 0x0f) === ZLIB_METHOD ? createInflate({ chunkSize }) : createInflateRaw({ chunkSize }),
  ]);

/**
 * A chain of decoders that is made when the first bytes arrive. Node's `compose` would lose the error of a decoder that ends
 * too early.
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
    // zlib may have ended already: then bytes followed the end of the compressed data.
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
