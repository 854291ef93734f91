/**
 * Bounds the bytes that servers send besides the contents of their answers, over all connections of one dispatcher: interim
 * answers, the sizes and extensions of chunks, blanks. undici reads these without end and without calling a handler, and a
 * packet of them costs the main thread more than its bytes would as contents.
 */
import type { Socket } from "node:net";
import type { Dispatcher } from "undici";

/** Overhead that is always allowed: heads of a dozen answers, and bytes that are read ahead of a slow body's reader. */
const FREE_BYTES = 512 * 1024;
/** One in this many bytes of contents is allowed besides: enough for chunks of two dozen bytes. */
const PART_OF_CONTENTS = 4;

class TooMuchOverhead extends Error {
  override readonly name = "TooMuchOverhead";
}

export class Overhead {
  #contentBytes = 0;
  readonly #sockets: Socket[] = [];
  /** How many of `#sockets` are watched: the first ones. */
  #watched = 0;

  /** Adds a connection; every one must be added before it is used. */
  counted(socket: Socket): Socket {
    this.#sockets.push(socket);
    return socket;
  }

  /** Counts the contents of answers, and ends connections whose overhead is too large. */
  readonly bounded: Dispatcher.DispatcherComposeInterceptor = (dispatch) => (options, handler) =>
    dispatch(options, {
      // From now on, so that the check runs after undici's own listener has read.
      onRequestStart: (controller, context) => {
        this.#watch();
        handler.onRequestStart?.(controller, context);
      },
      onRequestUpgrade: (...told) => handler.onRequestUpgrade?.(...told),
      onResponseStarted: () => handler.onResponseStarted?.(),
      onResponseStart: (...told) => handler.onResponseStart?.(...told),
      onResponseData: (controller, chunk) => {
        this.#contentBytes += chunk.length;
        handler.onResponseData?.(controller, chunk);
      },
      onResponseEnd: (...told) => handler.onResponseEnd?.(...told),
      onResponseError: (...told) => handler.onResponseError?.(...told),
      onBodySent: (chunk) => handler.onBodySent?.(chunk),
      onRequestSent: () => handler.onRequestSent?.(),
    });

  #watch(): void {
    for (const socket of this.#sockets.slice(this.#watched))
      socket.on("readable", () => {
        if (this.#isTooMuch()) socket.destroy(new TooMuchOverhead());
      });
    this.#watched = this.#sockets.length;
  }

  #isTooMuch(): boolean {
    const readBytes = this.#sockets.reduce((sum, { bytesRead }) => sum + bytesRead, 0);
    return readBytes - this.#contentBytes > FREE_BYTES + this.#contentBytes / PART_OF_CONTENTS;
  }
}
