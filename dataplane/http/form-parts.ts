/** The parts of a multipart form, in order, from a body that may have been decoded. */
import type { Multipart } from "@fastify/multipart";
import type { FastifyRequest } from "fastify";
import type { EventEmitter } from "node:events";
import { Readable } from "node:stream";

/** What busboy makes of a form: it keeps the reader of its parts' headers to itself. */
interface Busboy extends NodeJS.WritableStream {
  readonly _parser?: { readonly parser?: EventEmitter };
}
type PartHeaders = Readonly<Record<string, readonly string[] | undefined>>;

export class FormParts {
  readonly #source: Readable;
  readonly #parts: AsyncIterator<Multipart>;
  /** `content-type` of the part that is being read, and of each file so far. */
  #type: string | undefined;
  readonly #fileTypes: (string | undefined)[] = [];

  /** `body` stands for the request's own bytes. Throws from it are those of `next`. */
  constructor(request: FastifyRequest, body: AsyncIterable<Buffer>) {
    this.#source = Readable.from(body, { objectMode: false });
    const raw = Object.assign(this.#source, {
      headers: request.raw.headers,
      pipe: (busboy: Busboy) => {
        this.#watchHeaders(busboy);
        return Readable.prototype.pipe.call(this.#source, busboy);
      },
    });
    const form = Object.create(request, { raw: { value: raw } }) as FastifyRequest;
    const parts = form.parts({ isPartAFile: (...part) => this.#isFile(...part) });
    this.#parts = parts[Symbol.asyncIterator]();
  }

  /** null: the form is over. */
  async next(): Promise<Multipart | null> {
    const next = await this.#parts.next();
    return next.done === true ? null : next.value;
  }

  /** The content type that the first file says it has; undefined when it says none. */
  get firstFileType(): string | undefined {
    return this.#fileTypes[0];
  }

  close(): void {
    this.#source.destroy();
  }

  /** A part without a content type is `text/plain` to busboy (RFC 7578 §4.4); only its headers tell. */
  #watchHeaders(busboy: Busboy): void {
    busboy._parser?.parser?.prependListener("part", (part: EventEmitter) =>
      part.once("header", (headers: PartHeaders) => {
        const type = headers["content-type"]?.[0]?.trim();
        this.#type = type === "" ? undefined : type;
      }),
    );
  }

  /** As busboy decides, save that a `file` with a type of its own needs no name (dialects.md §A5). */
  #isFile(field: string | undefined, type: string | undefined, filename: string | undefined): boolean {
    const isFile =
      filename !== undefined ||
      type === "application/octet-stream" ||
      (field === "file" && this.#type !== undefined);
    if (isFile) this.#fileTypes.push(this.#type);
    return isFile;
  }
}
