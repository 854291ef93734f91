/**
 * Turns for reading what is worth little for what it costs: the rest of a body that was refused, and bodies in tiny
 * chunks. All connections that send such things share one rate. Between its turns a connection is paused, so that TCP
 * slows its sender down instead of this process.
 */
import type { Socket } from "node:net";
import { limits } from "./limits.ts";

/** Node reads so much of a connection at once. */
const READ_BYTES = 64 * 1024;
const TICK_MS = 5;

export class ReadTurns {
  readonly #perMs: number;
  readonly #line = new Set<Socket>();
  #timer: NodeJS.Timeout | null = null;
  /** Bytes that may be read now, one tick's share at most; below zero after reads that turned out to cost more. */
  #left = 0;
  #filledAt = 0;

  constructor(bytesPerSecond: number = limits.slowReadBytesPerSecond) {
    this.#perMs = bytesPerSecond / 1000;
  }

  /** Pauses the connection until its turn, in which it is read from once; at once where nobody else waits. */
  wait(socket: Socket): void {
    if (this.#line.has(socket)) return;
    if (this.#line.size === 0) {
      this.#fill();
      if (this.#left > 0) {
        this.#left -= READ_BYTES;
        return;
      }
    }
    this.#line.add(socket);
    socket.on("resume", pauseAgain);
    socket.pause();
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref();
  }

  /** Its connection is to be read as usual again. */
  leave(socket: Socket): void {
    if (!this.#line.delete(socket)) return;
    socket.off("resume", pauseAgain);
    socket.resume();
  }

  isWaiting(socket: Socket): boolean {
    return this.#line.has(socket);
  }

  /** What a read turned out to cost beyond its bytes. */
  spend(bytes: number): void {
    this.#left -= bytes;
  }

  #fill(): void {
    const now = performance.now();
    this.#left = Math.min(TICK_MS * this.#perMs, this.#left + (now - this.#filledAt) * this.#perMs);
    this.#filledAt = now;
  }

  #tick(): void {
    this.#fill();
    for (const socket of this.#line) {
      if (this.#left <= 0) return;
      if (!socket.destroyed) this.#left -= READ_BYTES;
      this.leave(socket);
    }
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }
}

/** The request's stream resumes its connection by itself whenever it has room. */
function pauseAgain(this: Socket): void {
  this.pause();
}

/** Those of this process. */
export const readTurns = new ReadTurns();
