import type { ServerResponse } from "node:http";
import type { AnswerSink } from "../inference/call.ts";
import { type AnswerBytes, joinedBytes, lengthOf, putBytes } from "../inference/answer/answer-bytes.ts";
import { Cancellation } from "../lib/cancellation.ts";
import { hasStalled } from "./stalled-clients.ts";

const nothing = () => {};

/** Longest whole answer that is copied into one text with its headers; copying more costs more than a second piece. */
const SHORT_BYTES = 16 * 1024;

/**
 * Buffer in which a chunk is put together. All clients share it, so it is filled and read within one synchronous call, and
 * never read beyond what that call filled. A buffer for each chunk would count as growth of V8's heap, which V8 collects whole
 * after some twenty megabytes of them (docs/decisions/performance.md).
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
  /** Whether it goes out in chunks, its length being unknown. */
  #isChunked = false;
  #waiting: PromiseWithResolvers<void> | null = null;

  /**
   * `onStart` runs before the headers are written and returns those that every answer has; `onStall` runs when the client was
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
    // A write after the client left fails; the close event has reported that already.
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
    // Node writes a chunk in four pieces and holds them back until its turn is over; `#writeChunk` makes one text of them.
    this.#isChunked = response.chunkedEncoding;
    response.chunkedEncoding = false;
  }

  write(bytes: AnswerBytes): boolean {
    const response = this.#response;
    if (response.destroyed) return true;
    const length = lengthOf(bytes);
    if (length === 0) return true;
    // Node would cork the socket at the first write of a turn and send when the turn is over; a corked socket it leaves alone.
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

  get waitingBytes(): number {
    return this.#response.destroyed ? 0 : this.#response.writableLength;
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

  /** Cuts the connection after a fault that the dialect cannot report: the client must not take the answer for complete. */
  cut(): void {
    this.#response.destroy();
  }

  #release(): void {
    this.#waiting?.resolve();
    this.#waiting = null;
  }
}

/** The bytes as Latin-1 text: each character is a byte. */
function latin1(bytes: AnswerBytes): string {
  if (Buffer.isBuffer(bytes)) return bytes.toString("latin1");
  return scratch.toString("latin1", 0, putBytes(scratch, 0, bytes));
}

/** A chunk with its frame, as Latin-1 text. */
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
