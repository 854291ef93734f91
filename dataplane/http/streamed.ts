import type { FastifyRequest } from "fastify";
import { Readable } from "node:stream";

/**
 * A body that is read from a store piece by piece. A HEAD gets none and nothing is read for it: Fastify would read all of it to
 * throw it away, as fast as the store gives it and for as long as it lasts, though the answer has long gone out.
 */
export const streamed = (
  { method }: Pick<FastifyRequest, "method">,
  contents: () => AsyncIterable<string | Uint8Array>,
): Readable => (method === "HEAD" ? Readable.from([]) : Readable.from(contents(), { objectMode: false }));
