import type { ServerResponse } from "node:http";
import type { AnswerSink } from "../inference/call.ts";
import { Cancellation } from "../lib/cancellation.ts";
import { hasStalled } from "./stalled-clients.ts";

const nothing = () => {};

/** Copying more than this costs more than a second piece. */
const SHORT_BYTES = 16 * 1024;

/**
 * An inference answer on the wire, straight to Node's response: Fastify's own way of sending costs twice the CPU
 * (dependencies.md §5). A client that takes nothing for a minute is cut, which looks to the server
 * like any other client that left.
 */
export class HttpAnswerSink implements AnswerSink {
  readonly #response: ServerResponse;
  readonly #onStart: () => Readonly<Record<string, string>>;
  readonly closed = new Cancellation();
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
    response.on("close", () => {
      if (!response.writableFinished) {
        if (hasStalled(response.req.socket)) onStall();
        this.closed.abort();
      }
      this.#release();
    });
    // A write after the client left: the close event has already said so.
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
    this.#response.writeHead(status, list);
  }

  write(bytes: Uint8Array | string): boolean {
    if (this.#response.destroyed) return true;
    return this.#response.write(bytes);
  }

  /** Node corks the socket at the first write of a turn. */
  hurry(): void {
    this.#response.socket?.uncork();
  }

  drained(): Promise<void> {
    if (this.#response.destroyed || !this.#response.writableNeedDrain) return Promise.resolve();
    if (this.#waiting === null) {
      this.#waiting = Promise.withResolvers<void>();
      this.#response.once("drain", () => this.#release());
    }
    return this.#waiting.promise;
  }

  end(bytes?: Uint8Array | string): void {
    if (this.#response.destroyed) return;
    // Node sends a short text and its headers in one piece, bytes in two; in latin1 each byte is a character.
    if (bytes instanceof Buffer && bytes.length <= SHORT_BYTES)
      this.#response.end(bytes.toString("latin1"), "latin1");
    else this.#response.end(bytes);
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
