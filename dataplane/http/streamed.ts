import type { ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { FastifyReply, FastifyRequest } from "fastify";

/**
 * An answer's body that is read from a store piece by piece, each once the client has taken the one before. For HEAD nothing is
 * read: Fastify would read all of it only to throw it away, long after the answer has gone out.
 */
export const streamed = (
  { method }: Pick<FastifyRequest, "method">,
  { raw }: Pick<FastifyReply, "raw">,
  contents: () => AsyncIterable<string | Uint8Array>,
): Readable =>
  method === "HEAD" ? Readable.from([]) : Readable.from(onceTaken(raw, contents()), { objectMode: false });

/** Asks for no piece before the last one is out: a stream would have one in memory for the time after a client's pause. */
async function* onceTaken<Piece>(raw: ServerResponse, pieces: AsyncIterable<Piece>): AsyncGenerator<Piece> {
  if (raw.closed) return;
  for await (const piece of pieces) {
    yield piece;
    // It is written in the turn in which the next one is asked for.
    await nextTurn();
    while (raw.writableNeedDrain && !raw.closed) await drainedOrClosed(raw);
    if (raw.closed) return;
  }
}

function drainedOrClosed(raw: ServerResponse): Promise<unknown> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const end = () => {
    raw.off("drain", end).off("close", end);
    resolve();
  };
  raw.once("drain", end).once("close", end);
  return promise;
}
