/**
 * Chunked bodies (RFC 9112 §7.1). Node hands over each chunk by itself and limits only the bytes in them: 64 KiB in chunks of
 * one byte are 65,536 Buffers that wait until somebody reads the body. Here small chunks are joined as they are parsed, and a
 * connection whose chunk frames exceed `limits.frameBytes` is read in turns from then on, whichever code reads the body.
 */
import type { IncomingMessage, Server } from "node:http";
import { SMALL_PIECE_BYTES, SmallPieces } from "../lib/small-pieces.ts";
import { limits } from "./limits.ts";
import { slowReads } from "./read-turns.ts";

/** The least that a chunk's frame adds to its bytes (`1\r\n`, `\r\n`). */
const FRAME_BYTES = 5;
/**
 * Cost of a chunk: it takes one to two microseconds of the event loop, in which 1 KiB of a plain body would be read and looked
 * at.
 */
const CHUNK_COST_BYTES = 1024;

/** Call it before anything else listens to the server's requests. */
export function boundChunks(server: Server): void {
  server.prependListener("request", (request: IncomingMessage) => {
    if ("transfer-encoding" in request.headers) gatherChunks(request);
  });
}

function gatherChunks(request: IncomingMessage): void {
  const { socket } = request;
  const push = request.push.bind(request);
  const small = new SmallPieces();
  let flushing = false;
  let bytes = 0;
  let chunks = 0;

  /** @returns whether more may come. */
  const flush = (): boolean => {
    const gathered = small.take();
    return gathered === null || push(gathered);
  };
  /** Runs by setImmediate: ticks and promises come after each chunk, setImmediate after all chunks of one read of the socket. */
  const afterThisRead = () => {
    flushing = false;
    // As Node does when `push` returns false.
    if (!flush()) socket.pause();
  };

  request.push = (chunk: Buffer | null): boolean => {
    if (chunk === null) {
      flush();
      slowReads.leave(socket);
      return push(null);
    }
    bytes += chunk.length;
    chunks += 1;
    if (chunks * FRAME_BYTES > limits.frameBytes + bytes / 16) {
      slowReads.spend(CHUNK_COST_BYTES);
      slowReads.wait(socket);
    }
    if (chunk.length > SMALL_PIECE_BYTES) {
      flush();
      return push(chunk);
    }
    if (!flushing) setImmediate(afterThisRead);
    flushing = true;
    const full = small.add(chunk);
    return full === null || push(full);
  };
}
