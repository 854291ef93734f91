/** A request's body as it comes, for bodies that are too large to stand in memory: bounded and decoded. */
import type { IncomingMessage } from "node:http";
import type { Transform } from "node:stream";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { ApiError } from "../lib/api-error.ts";
import { limits } from "./limits.ts";
import { ClientGone, tooLarge, unknownEncoding } from "./request-body.ts";

/** The same encodings as `readBody`'s. */
const decoders = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  zstd: createZstdDecompress,
} as const satisfies Record<string, () => Transform>;

/**
 * The decoded body, in pieces. What is left when the reader stops is read and dropped, so that a client that is
 * still sending gets to see the answer.
 * @throws ApiError and ClientGone as `readBody` does.
 */
export async function* streamBody(request: IncomingMessage, maxBytes: number): AsyncGenerator<Buffer> {
  const encoding = (request.headers["content-encoding"] ?? "identity").trim().toLowerCase();
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) throw tooLarge(maxBytes);
  const source = bounded(incoming(request), maxBytes);
  if (encoding === "identity" || encoding === "") {
    yield* source;
    return;
  }
  if (!Object.hasOwn(decoders, encoding)) throw unknownEncoding();
  yield* bounded(decode(source, encoding as keyof typeof decoders), maxBytes);
}

async function* bounded(source: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Buffer> {
  let length = 0;
  for await (const chunk of source) {
    length += chunk.length;
    if (length > maxBytes) throw tooLarge(maxBytes);
    yield chunk;
  }
}

/** The raw bytes, with an end to silence. */
async function* incoming(request: IncomingMessage): AsyncGenerator<Buffer> {
  // The request stays open when the reader stops: its answer is still to be sent.
  const chunks = request.iterator({ destroyOnReturn: false });
  let leftEarly = false;
  // Once its reader is gone, a request that breaks off must not end the process.
  request.on("error", () => {});
  try {
    for (;;) {
      const next = await withinIdleTime(chunks.next());
      if (next.done === true) break;
      yield next.value as Buffer;
    }
    leftEarly = !request.complete;
  } catch (error) {
    if (error instanceof ApiError) throw error;
    leftEarly = true;
  } finally {
    // Only without a reader the rest flows away. Not waited for: it ends after a read that is still under way.
    void Promise.resolve(chunks.return?.())
      .catch(() => undefined)
      .then(() => request.resume());
  }
  if (leftEarly) throw new ClientGone("the client left before its request was complete");
}

async function withinIdleTime<T>(next: Promise<T>): Promise<T> {
  const { promise: silence, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => reject(new ApiError("request_timeout", "The request body did not arrive in time.")),
    limits.bodyIdleMs,
  );
  try {
    return await Promise.race([next, silence]);
  } finally {
    clearTimeout(timer);
    // Nobody waits for it any more when the time was up.
    next.catch(() => undefined);
  }
}

async function* decode(
  source: AsyncIterable<Buffer>,
  encoding: keyof typeof decoders,
): AsyncGenerator<Buffer> {
  const decoder = decoders[encoding]();
  const feeding = feed(source, decoder);
  try {
    for await (const chunk of decoder) yield chunk as Buffer;
  } catch (cause) {
    const fault = await feeding;
    if (fault !== null) throw fault;
    throw new ApiError("invalid_request", `The request body is not valid ${encoding} data.`, { cause });
  } finally {
    decoder.destroy();
  }
}

/** Never fails: what went wrong with the source is its result. */
async function feed(source: AsyncIterable<Buffer>, decoder: Transform): Promise<Error | null> {
  try {
    for await (const chunk of source) {
      if (decoder.destroyed) return null;
      if (!decoder.write(chunk)) {
        await new Promise<void>((room) => {
          decoder.once("drain", room);
          decoder.once("close", room);
        });
      }
    }
    decoder.end();
    return null;
  } catch (error) {
    const fault = error instanceof Error ? error : new Error(String(error));
    decoder.destroy(fault);
    return fault;
  }
}
