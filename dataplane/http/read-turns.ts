/**
 * Turns for reading input that would take the event loop from everybody if it were read as fast as it comes. All connections
 * with such input share one rate. Between its turns a connection is paused, so that TCP slows its sender down instead of this
 * process.
 */
import type { Socket } from "node:net";
import { limits } from "./limits.ts";

/** Most that Node reads of a connection at once. */
const READ_BYTES = 64 * 1024;
const TICK_MS = 5;

export class ReadTurns {
  readonly #perMs: number;
  /** Waiting connections, and callbacks of readers of other sources, with their places: the lowest is next. */
  readonly #line = new Map<Socket | (() => void), number>();
  #places = 0;
  #timer: NodeJS.Timeout | null = null;
  /** Bytes that may be read now, one tick's share at most; below zero after reads that turned out to cost more. */
  #left = 0;
  #filledAt = 0;

  constructor(bytesPerSecond: number) {
    this.#perMs = bytesPerSecond / 1000;
  }

  /**
   * A place behind all others. Readers that take a new one for each wait share the rate; one that keeps its place is read to
   * the end before those that came later.
   */
  place(): number {
    return (this.#places += 1);
  }

  /** Pauses the connection until its turn, in which it is read from once; not at all where nobody waits and the rate has room. */
  wait(socket: Socket, place = this.place()): void {
    if (this.#line.has(socket) || this.#mayReadNow()) return;
    this.#join(socket, place);
    socket.on("resume", pauseAgain);
    socket.pause();
  }

  /** Waits until 64 KiB more may be read from a source other than a connection. */
  async turn(place: number): Promise<void> {
    if (this.#mayReadNow()) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#join(resolve, place);
    await promise;
  }

  /** Ends the connection's wait: it is read as usual again. */
  leave(socket: Socket): void {
    if (!this.#line.delete(socket)) return;
    socket.off("resume", pauseAgain);
    socket.resume();
  }

  isWaiting(socket: Socket): boolean {
    return this.#line.has(socket);
  }

  /** Counts what a read turned out to cost beyond its bytes, as bytes of the shared rate. */
  spend(bytes: number): void {
    this.#left -= bytes;
  }

  #mayReadNow(): boolean {
    if (this.#line.size > 0) return false;
    this.#fill();
    if (this.#left <= 0) return false;
    this.#left -= READ_BYTES;
    return true;
  }

  #join(waiting: Socket | (() => void), place: number): void {
    this.#line.set(waiting, place);
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref();
  }

  #fill(): void {
    const now = performance.now();
    this.#left = Math.min(TICK_MS * this.#perMs, this.#left + (now - this.#filledAt) * this.#perMs);
    this.#filledAt = now;
  }

  #tick(): void {
    this.#fill();
    for (const [waiting] of [...this.#line].sort(([, one], [, other]) => one - other)) {
      if (this.#left <= 0) return;
      const isSocket = typeof waiting !== "function";
      if (!isSocket || !waiting.destroyed) this.#left -= READ_BYTES;
      if (isSocket) this.leave(waiting);
      else {
        this.#line.delete(waiting);
        waiting();
      }
    }
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }
}

/** Keeps a waiting connection paused: Node resumes it by itself whenever the request's stream has room. */
function pauseAgain(this: Socket): void {
  this.pause();
}

/** Input that is worth little for what it costs: the rest of a refused body, and bodies in tiny chunks. */
export const slowReads = new ReadTurns(limits.slowReadBytesPerSecond);

/**
 * Large bodies: V8 collects its whole heap whenever the bodies held at the moment have grown by 64 MiB. Each body keeps its
 * place: of a hundred at once that cannot all be held, some come to their end.
 */
export const largeBodyReads = new ReadTurns(limits.largeBodyBytesPerSecond);
