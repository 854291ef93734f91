/** The parts of a multipart form, in order, from a body that may have been decoded. */
import type { Multipart } from "@fastify/multipart";
import type { FastifyRequest } from "fastify";
import { Readable } from "node:stream";

export class FormParts {
  readonly #source: Readable;
  readonly #parts: AsyncIterator<Multipart>;

  /** `body` stands for the request's own bytes. Throws from it are those of `next`. */
  constructor(request: FastifyRequest, body: AsyncIterable<Buffer>) {
    this.#source = Readable.from(body, { objectMode: false });
    const raw = Object.assign(this.#source, {
      headers: request.raw.headers,
    });
    const form = Object.create(request, { raw: { value: raw } }) as FastifyRequest;
    const parts = form.parts();
    this.#parts = parts[Symbol.asyncIterator]();
  }

  /** null: the form is over. */
  async next(): Promise<Multipart | null> {
    const next = await this.#parts.next();
    return next.done === true ? null : next.value;
  }

  close(): void {
    this.#source.destroy();
  }
}
