import type { FastifyRequest } from "fastify";
import { Readable } from "node:stream";

/**
 * An answer's body that is read from a store piece by piece. For HEAD nothing is read: Fastify would read all of it only to
 * throw it away, long after the answer has gone out.
 */
export const streamed = (
  { method }: Pick<FastifyRequest, "method">,
  contents: () => AsyncIterable<string | Uint8Array>,
): Readable => (method === "HEAD" ? Readable.from([]) : Readable.from(contents(), { objectMode: false }));
