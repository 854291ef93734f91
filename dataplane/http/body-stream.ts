/** Streams a request's body, bounded and decoded, for bodies that are too large to hold in memory. */
import type { IncomingMessage } from "node:http";
import type { Transform, Writable } from "node:stream";
import { ApiError } from "../lib/api-error.ts";
import { codingNamed, decoderOf, requestCodings } from "../lib/content-coding.ts";
import { inTime } from "../lib/in-time.ts";
import { bodyTimeout, clientGone, bodyTooLarge, unknownEncoding } from "./body-errors.ts";
import { inviteBody } from "./continue.ts";
import { limits } from "./limits.ts";
import { dropRest } from "./linger.ts";

/** The request's content encoding; null for none. */
export function encodingOf(request: IncomingMessage): string | null {
  const encoding = request.headers["content-encoding"]?.trim().toLowerCase() ?? "";
  return encoding === "" || encoding === "identity" ? null : encoding;
}

/**
 * Yields the decoded body in pieces. When the reader stops, the rest is dropped, so that a client that is still sending gets to
 * see the answer.
 * @throws ApiError and ClientGone as `readBody` does, except that nothing is counted here.
 */
export async function* streamBody(request: IncomingMessage, maxBytes: number): AsyncGenerator<Buffer> {
  const encoding = encodingOf(request);
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) throw bodyTooLarge(maxBytes);
  const source = bounded(incoming(request), maxBytes);
  if (encoding === null) {
    yield* source;
    return;
  }
  const coding = codingNamed(encoding, requestCodings);
  if (coding === undefined) throw unknownEncoding();
  yield* bounded(decode(source, encoding, decoderOf(coding)), maxBytes);
}

async function* bounded(source: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Buffer> {
  let length = 0;
  for await (const chunk of source) {
    length += chunk.length;
    if (length > maxBytes) throw bodyTooLarge(maxBytes);
    yield chunk;
  }
}

/** Yields the raw bytes; gives up on a client that sends nothing for `bodyIdleMs`. */
async function* incoming(request: IncomingMessage): AsyncGenerator<Buffer> {
  inviteBody(request);
  // The request stays open when the reader stops: its answer is still to be sent.
  const chunks = request.iterator({ destroyOnReturn: false });
  let leftEarly = false;
  // Once its reader is gone, a request that breaks off must not end the process.
  request.on("error", () => {});
  try {
    for (;;) {
      const next = await inTime(limits.bodyIdleMs, chunks.next(), bodyTimeout);
      if (next.done === true) break;
      yield next.value as Buffer;
    }
    leftEarly = !request.complete;
  } catch (error) {
    if (error instanceof ApiError) throw error;
    leftEarly = true;
  } finally {
    // The rest can be dropped only once nobody reads. Not awaited: a read that is still under way has to end first.
    Promise.resolve(chunks.return?.())
      .catch(() => undefined)
      .finally(() => dropRest(request));
  }
  if (leftEarly) throw clientGone();
}

async function* decode(
  source: AsyncIterable<Buffer>,
  encoding: string,
  decoder: Transform,
): AsyncGenerator<Buffer> {
  const feeding = feed(source, decoder);
  try {
    for await (const chunk of decoder) yield chunk as Buffer;
  } catch (cause) {
    const { fault, bytes } = await feeding;
    if (fault !== null) throw fault;
    // An empty body is valid whatever encoding the header names.
    if (bytes === 0) return;
    throw new ApiError("invalid_request", `The request body is not valid ${encoding} data.`, { cause });
  } finally {
    decoder.destroy();
  }
}

/** Never rejects: a fault of the source destroys the decoder and is returned. */
export async function feed(
  source: AsyncIterable<Buffer>,
  decoder: Writable,
): Promise<{ readonly fault: Error | null; readonly bytes: number }> {
  let bytes = 0;
  try {
    for await (const chunk of source) {
      if (decoder.destroyed) break;
      bytes += chunk.length;
      if (!decoder.write(chunk)) await roomIn(decoder);
      if (decoder.destroyed) break;
    }
    decoder.end();
    return { fault: null, bytes };
  } catch (error) {
    const fault = error instanceof Error ? error : new Error(String(error));
    decoder.destroy(fault);
    return { fault, bytes };
  }
}

/** Settles when the decoder takes more, or is destroyed. */
async function roomIn(decoder: Writable): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  decoder.once("drain", resolve).once("close", resolve);
  await promise;
  decoder.removeListener("drain", resolve).removeListener("close", resolve);
}
