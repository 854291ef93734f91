/**
 * What servers send beside the contents of their answers, over all connections of one dispatcher: interim answers, the sizes
 * and extensions of chunks, blanks. undici reads of these for as long as they come, without a word to whoever asked, and a
 * packet of them takes the main thread longer than its bytes would.
 */
import type { Socket } from "node:net";
import type { Dispatcher } from "undici";

/** Heads of a dozen answers, and what is read ahead of a body whose reader is slower. */
const FREE_BYTES = 512 * 1024;
/** And this part of the contents: chunks of two dozen bytes. */
const PART_OF_CONTENTS = 4;

class TooMuchOverhead extends Error {
  override readonly name = "TooMuchOverhead";
}

export class Overhead {
  #contentBytes = 0;
  readonly #sockets: Socket[] = [];
  /** Of `sockets`, those that are looked at. */
  #watched = 0;

  /** Every connection has to pass here before it is used. */
  counted(socket: Socket): Socket {
    this.#sockets.push(socket);
    return socket;
  }

  /** Counts the contents that its requests bring, and ends connections that bring too much else. */
  readonly bounded: Dispatcher.DispatcherComposeInterceptor = (dispatch) => (options, handler) =>
    dispatch(options, {
      // A connection is looked at after its reader, which has a listener of its own by now.
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
