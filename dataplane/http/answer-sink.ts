import type { ServerResponse } from "node:http";
import type { AnswerSink } from "../inference/call.ts";
import { type AnswerBytes, joinedBytes, lengthOf, putBytes } from "../inference/answer/answer-bytes.ts";
import { Cancellation } from "../lib/cancellation.ts";
import { hasStalled } from "./stalled-clients.ts";

const nothing = () => {};

/** A whole answer up to here is copied into one text with its headers: copying more costs more than a second piece. */
const SHORT_BYTES = 16 * 1024;

/**
 * Where a chunk is put together: filled and read within one synchronous call, and never read beyond what that call filled,
 * as all clients share it. No buffer of a chunk's own is made: V8 counts buffers as growth of its heap, and collects all of
 * it after some twenty megabytes of them (docs/decisions/performance.md).
 */
const scratch = Buffer.allocUnsafeSlow(64 * 1024);

const END_OF_CHUNKS = "0\r\n\r\n";

/**
 * An inference answer on the wire, straight to Node's response: Fastify's own way of sending costs twice the CPU
 * (dependencies.md §5). A client that takes nothing for a minute is cut, which looks to the server
 * like any other client that left.
 */
export class HttpAnswerSink implements AnswerSink {
  readonly #response: ServerResponse;
  readonly #onStart: () => Readonly<Record<string, string>>;
  readonly closed = new Cancellation();
  /** Its length is not known before its end. */
  #isChunked = false;
  #waiting: PromiseWithResolvers<void> | null = null;

  /**
   * `onStart` runs before the headers are written, and gives those that every answer has; `onStall` when a client is
   * cut for taking nothing.
   */
  constructor(
    response: ServerResponse,
    onStart: () => Readonly<Record<string, string>>,
    onStall: () => void,
  ) {
    this.#response = response;
    this.#onStart = onStart;
    // A response that is closed already emits no event any more.
    if (response.destroyed) this.closed.abort();
    response.on("close", () => {
      if (!response.writableFinished) {
        if (hasStalled(response.req.socket)) onStall();
        this.closed.abort();
      }
      this.#release();
    });
    // Of a write after the client left, which the close event has told already.
    response.on("error", nothing);
  }

  get started(): boolean {
    return this.#response.headersSent;
  }

  start(status: number, headers: Readonly<Record<string, string>>): void {
    if (this.#response.destroyed) return;
    // Names and values in turn: Node writes them down as they are.
    const list: string[] = [];
    const own = this.#onStart();
    for (const name in own) list.push(name, own[name] as string);
    for (const name in headers) list.push(name, headers[name] as string);
    const response = this.#response;
    response.writeHead(status, list);
    // Node writes a chunk in four pieces, and holds the socket back for them until its turn is over; here it is one text.
    this.#isChunked = response.chunkedEncoding;
    response.chunkedEncoding = false;
  }

  write(bytes: AnswerBytes): boolean {
    const response = this.#response;
    if (response.destroyed) return true;
    const length = lengthOf(bytes);
    if (length === 0) return true;
    // Node would cork it at the first write of a turn, and send when the turn is over; a corked one it leaves alone.
    const { socket } = response;
    socket?.cork();
    const isTaken = this.#isChunked ? this.#writeChunk(bytes, length) : response.write(plain(bytes));
    socket?.uncork();
    return isTaken;
  }

  #writeChunk(bytes: AnswerBytes, length: number): boolean {
    const response = this.#response;
    const head = `${length.toString(16)}\r\n`;
    if (head.length + length + 2 <= scratch.length) return response.write(chunkText(head, bytes), "latin1");
    response.write(head, "latin1");
    response.write(plain(bytes));
    return response.write("\r\n", "latin1");
  }

  drained(): Promise<void> {
    if (this.#response.destroyed || !this.#response.writableNeedDrain) return Promise.resolve();
    if (this.#waiting === null) {
      this.#waiting = Promise.withResolvers<void>();
      this.#response.once("drain", () => this.#release());
    }
    return this.#waiting.promise;
  }

  end(bytes?: AnswerBytes): void {
    const response = this.#response;
    if (response.destroyed) return;
    if (!this.#isChunked) {
      if (bytes === undefined || typeof bytes === "string") response.end(bytes);
      // Node sends a short text and its headers in one piece, bytes in two.
      else if (lengthOf(bytes) <= SHORT_BYTES) response.end(latin1(bytes), "latin1");
      else response.end(plain(bytes));
      return;
    }
    const { socket } = response;
    socket?.cork();
    const length = bytes === undefined ? 0 : lengthOf(bytes);
    if (bytes !== undefined && length > 0) this.#writeChunk(bytes, length);
    response.end(END_OF_CHUNKS, "latin1");
    socket?.uncork();
  }

  /** Cuts the connection after a fault that the dialect cannot tell: the client must not take the answer for complete. */
  cut(): void {
    this.#response.destroy();
  }

  #release(): void {
    this.#waiting?.resolve();
    this.#waiting = null;
  }
}

/** The bytes as text of which each character is a byte. */
function latin1(bytes: AnswerBytes): string {
  if (Buffer.isBuffer(bytes)) return bytes.toString("latin1");
  return scratch.toString("latin1", 0, putBytes(scratch, 0, bytes));
}

/** A chunk with its frame, as text of which each character is a byte. */
function chunkText(head: string, bytes: AnswerBytes): string {
  let at = scratch.write(head, 0, "latin1");
  at = putBytes(scratch, at, bytes);
  at += scratch.write("\r\n", at, "latin1");
  return scratch.toString("latin1", 0, at);
}

/** The bytes as Node takes them. */
function plain(bytes: AnswerBytes): Buffer | string {
  return typeof bytes === "string" || Buffer.isBuffer(bytes) ? bytes : joinedBytes(bytes);
}
