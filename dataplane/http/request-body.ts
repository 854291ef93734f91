/** Reads a request's body whole: bounded, decoded, counted as it comes, with a deadline for silence. */
import type { FastifyRequest } from "fastify";
import type { IncomingMessage } from "node:http";
import { ApiError } from "../lib/api-error.ts";
import type { ByteLease } from "../lib/byte-budget.ts";
import { readJsonObject, type JsonObjectRead } from "../lib/json-read.ts";
import { GatheredPieces, joinedInSlices } from "../lib/small-pieces.ts";
import { bodyTimeout, clientGone, bodyTooLarge } from "./body-errors.ts";
import { encodingOf, streamBody } from "./body-stream.ts";
import { inviteBody } from "./continue.ts";
import { limits } from "./limits.ts";
import { dropRest } from "./linger.ts";
import { largeBodyReads, slowReads } from "./read-turns.ts";

/** A request as far as its body is concerned. */
export type BodyRequest = Pick<FastifyRequest, "raw" | "bodyLease">;

/**
 * Reads the body, with its content encoding removed. Its bytes are counted in `bodyLease`, decoded ones as they are unpacked,
 * until the lease is released.
 * @throws ApiError 413 beyond `maxBytes`, before or after decoding; 415 for an unknown encoding; 400 when the encoded bytes are
 * damaged; 408 when the client falls silent; 429 and 503 when too many bytes of bodies are held.
 * @throws ClientGone when the client hangs up.
 */
export function readBody(request: BodyRequest, maxBytes: number): Promise<Buffer> {
  return encodingOf(request.raw) === null ? readRaw(request, maxBytes) : readDecoded(request, maxBytes);
}

async function readDecoded(request: BodyRequest, maxBytes: number): Promise<Buffer> {
  const { raw, bodyLease } = request;
  const pieces = new Pieces(0);
  const place = largeBodyReads.place(bodyLease.organizationId);
  try {
    for await (const piece of streamBody(raw, maxBytes)) {
      takeOrRelease(bodyLease, piece.length);
      pieces.add(piece);
      if (pieces.length > limits.quickBodyBytes) await largeBodyReads.turn(place);
    }
  } finally {
    largeBodyReads.end(place);
  }
  return pieces.whole();
}

/**
 * Takes bytes; when they are refused, releases the whole lease at once, as others would be refused for it until the answer is
 * out.
 */
function takeOrRelease(lease: ByteLease, bytes: number): void {
  try {
    lease.take(bytes);
  } catch (error) {
    lease.release();
    throw error;
  }
}

/**
 * Yields the decoded body in pieces, for a reader that holds at most `heldBytes` of it at once; at most so many are counted.
 * @throws ApiError and ClientGone as `readBody` does.
 */
export async function* streamCounted(
  { raw, bodyLease }: BodyRequest,
  maxBytes: number,
  heldBytes: number,
): AsyncGenerator<Buffer> {
  for await (const piece of streamBody(raw, maxBytes)) {
    const room = heldBytes - bodyLease.bytes;
    if (room > 0) bodyLease.take(Math.min(room, piece.length));
    yield piece;
  }
}

/** Reads the body as a JSON object. @throws ApiError as `readBody`, `requireJsonType` and `readJsonObject` do. */
export async function readJsonBody(request: BodyRequest, maxBytes: number): Promise<JsonObjectRead> {
  requireJsonType(request.raw);
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

/** The body's announced length; 0: none was announced. */
export const announcedLength = (request: IncomingMessage): number =>
  Number(request.headers["content-length"] ?? 0);

function readRaw({ raw: request, bodyLease }: BodyRequest, maxBytes: number): Promise<Buffer> {
  const { socket } = request;
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const announced = announcedLength(request);
  try {
    // A request that is destroyed already emits no event any more.
    if (request.destroyed) throw clientGone();
    if (announced > maxBytes) throw bodyTooLarge(maxBytes);
    bodyLease.expect(announced);
  } catch (error) {
    reject(error);
    return promise;
  }
  const pieces = new Pieces(announced);
  const place = largeBodyReads.place(bodyLease.organizationId);
  const idle = setTimeout(() => {
    // Waiting for a turn is not silence.
    if ([slowReads, largeBodyReads].some((turns) => turns.isWaiting(socket))) idle.refresh();
    else finish(() => reject(bodyTimeout()));
  }, limits.bodyIdleMs);
  const finish = (settle: () => void) => {
    clearTimeout(idle);
    largeBodyReads.leave(socket);
    largeBodyReads.end(place);
    request.removeListener("data", onData);
    request.removeListener("end", onEnd);
    request.removeListener("close", onClose);
    request.removeListener("error", onClose);
    settle();
  };
  const onData = (chunk: Buffer) => {
    try {
      if (pieces.length + chunk.length > maxBytes) throw bodyTooLarge(maxBytes);
      takeOrRelease(bodyLease, chunk.length);
    } catch (error) {
      pieces.drop();
      finish(() => reject(error));
      dropRest(request);
      return;
    }
    pieces.add(chunk);
    if (pieces.length > limits.quickBodyBytes) largeBodyReads.wait(socket, place);
    idle.refresh();
  };
  const onEnd = () => finish(() => resolve(pieces.whole()));
  const onClose = () => finish(() => reject(clientGone()));
  inviteBody(request);
  request.on("data", onData);
  request.on("end", onEnd);
  request.on("close", onClose);
  request.on("error", onClose);
  return promise;
}

/** A body on its way in. */
class Pieces {
  length = 0;
  readonly #announced: number;
  readonly #parts = new GatheredPieces();
  /** Buffer for the whole body, made once so much has come that the announced length can be believed. */
  #whole: Buffer | null = null;

  /** `announced`: the body's length; 0 when that is not known. */
  constructor(announced: number) {
    this.#announced = announced;
  }

  add(chunk: Buffer): void {
    // A large body is copied into one buffer as it comes: joining its pieces at the end would hold it twice.
    if (this.#whole === null && this.length > limits.quickBodyBytes && this.#announced > 0) {
      this.#whole = Buffer.allocUnsafeSlow(this.#announced);
      let at = 0;
      for (const part of this.#parts.take()) at += part.copy(this.#whole, at, 0, this.length - at);
    }
    if (this.#whole === null) this.#parts.add(chunk);
    else chunk.copy(this.#whole, this.length);
    this.length += chunk.length;
  }

  whole(): Buffer | Promise<Buffer> {
    if (this.#whole !== null) return this.#whole.subarray(0, this.length);
    const parts = this.#parts.take();
    const [only] = parts;
    if (parts.length === 1 && only !== undefined) return only;
    if (this.length > limits.quickBodyBytes) return joinedInSlices(parts, this.length);
    return Buffer.concat(parts, this.length);
  }

  drop(): void {
    this.#parts.take();
    this.#whole = null;
  }
}
