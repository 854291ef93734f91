/**
 * Bounds the bytes that servers send besides the contents of their answers: interim answers, the sizes and extensions of chunks,
 * blanks. undici reads these without end and without calling a handler, and a packet of them costs the main thread more than
 * its bytes would as contents. A connection with too much of it is ended.
 */
import type { Socket } from "node:net";
import type { Dispatcher } from "undici";

export interface OverheadLimits {
  /** Always allowed for an answer: its head, and what is read ahead of a slow body's reader. */
  readonly freeBytes: number;
  /** Allowed besides, for each byte of contents. */
  readonly perContentByte: number;
}

export const TOO_MUCH_OVERHEAD = "TooMuchOverhead";

class TooMuchOverhead extends Error {
  override readonly name = TOO_MUCH_OVERHEAD;
}

/** Most bytes that a socket's `read` gives: what Node buffers (64 KiB), and the packet that filled the buffer. */
const READ_BYTES = 128 * 1024;

/** Where the contents of an answer are counted. */
export interface AnswerConnection {
  contents(bytes: number): void;
}

/** What has come over a connection since its last answer began. */
class Connection implements AnswerConnection {
  readonly #socket: Socket;
  readonly #limits: OverheadLimits;
  /** Reads that cannot bring too much: most answers end within them, and to ask a socket for its bytes costs each read. */
  readonly #freeReads: number;
  #reads = 0;
  #from = 0;
  #contentBytes = 0;

  constructor(socket: Socket, limits: OverheadLimits) {
    this.#socket = socket;
    this.#limits = limits;
    this.#freeReads = Math.floor(limits.freeBytes / READ_BYTES);
  }

  /** Bytes that were read from the socket, without those that wait in it. */
  get #readBytes(): number {
    return this.#socket.bytesRead - this.#socket.readableLength;
  }

  begin(): void {
    this.#from = this.#readBytes;
    this.#contentBytes = 0;
    this.#reads = 0;
  }

  contents(bytes: number): void {
    this.#contentBytes += bytes;
  }

  /** To be asked before each read. */
  isTooMuch(): boolean {
    this.#reads += 1;
    if (this.#reads <= this.#freeReads) return false;
    const { freeBytes, perContentByte } = this.#limits;
    const overhead = this.#readBytes - this.#from - this.#contentBytes;
    return overhead > freeBytes + this.#contentBytes * perContentByte;
  }
}

/** The connection that was read last: undici parses what it has read, and calls handlers, before it reads another one. */
let readLast: Connection | null = null;

/**
 * Tells that the head of an answer was read. Interim answers (1xx) are overhead.
 * @returns where its contents are to be counted; null: its connection is not bounded
 */
export function answerBegan(status: number): AnswerConnection | null {
  if (status >= 200) readLast?.begin();
  return readLast;
}

/**
 * Ends a connection whose overhead is too large. The handlers of its dispatcher have to call `answerBegan` and count contents,
 * or it has to be composed with `overheadBounded`, which does both.
 */
export function boundOverhead<Connected extends Socket>(
  socket: Connected,
  limits: OverheadLimits,
): Connected {
  const connection = new Connection(socket, limits);
  const read = socket.read.bind(socket);
  socket.read = (size?: number): unknown => {
    readLast = connection;
    if (!connection.isTooMuch()) return read(size);
    socket.destroy(new TooMuchOverhead());
    return null;
  };
  return socket;
}

/** Counts the contents of answers. */
export const overheadBounded: Dispatcher.DispatcherComposeInterceptor = (dispatch) => (options, handler) =>
  dispatch(options, new Counting(handler));

class Counting implements Dispatcher.DispatchHandler {
  readonly #handler: Dispatcher.DispatchHandler;
  #connection: AnswerConnection | null = null;

  constructor(handler: Dispatcher.DispatchHandler) {
    this.#handler = handler;
  }

  onResponseStart(...told: Parameters<NonNullable<Dispatcher.DispatchHandler["onResponseStart"]>>): void {
    this.#connection = answerBegan(told[1]);
    this.#handler.onResponseStart?.(...told);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#connection?.contents(chunk.length);
    this.#handler.onResponseData?.(controller, chunk);
  }

  onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void {
    this.#handler.onRequestStart?.(controller, context);
  }

  onRequestUpgrade(...told: Parameters<NonNullable<Dispatcher.DispatchHandler["onRequestUpgrade"]>>): void {
    this.#handler.onRequestUpgrade?.(...told);
  }

  onResponseStarted(): void {
    this.#handler.onResponseStarted?.();
  }

  onResponseEnd(...told: Parameters<NonNullable<Dispatcher.DispatchHandler["onResponseEnd"]>>): void {
    this.#handler.onResponseEnd?.(...told);
  }

  onResponseError(...told: Parameters<NonNullable<Dispatcher.DispatchHandler["onResponseError"]>>): void {
    this.#handler.onResponseError?.(...told);
  }

  onBodySent(chunk: Buffer): void {
    this.#handler.onBodySent?.(chunk);
  }

  onRequestSent(): void {
    this.#handler.onRequestSent?.();
  }
}
