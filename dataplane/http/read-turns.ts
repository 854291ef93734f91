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
/** The least that a chunk's frame adds to its bytes (`1\r\n`, `\r\n`). */
const FRAME_BYTES = 5;
/** A chunk takes a microsecond of the event loop, in which 1 KiB of a plain body would be read. */
const CHUNK_COST_BYTES = 1024;

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

/** What a body costs beside its bytes: the frames of its chunks. */
export class Frames {
  readonly #socket: Socket;
  readonly #chunked: boolean;
  /** Of the connection, before the body. */
  readonly #before: number;
  #bytes = 0;
  #parts = 0;
  #paid = 0;

  constructor({ socket, headers }: { readonly socket: Socket; readonly headers: object }) {
    this.#socket = socket;
    this.#chunked = "transfer-encoding" in headers;
    this.#before = this.#chunked ? socket.bytesRead : 0;
  }

  /**
   * A part of the body has come. Where frames outweigh what is in them, they are paid for.
   * @returns whether they do.
   */
  add(bytes: number): boolean {
    if (!this.#chunked) return false;
    this.#bytes += bytes;
    this.#parts += 1;
    // The connection's count lacks what it has read before the body was looked at; parts may be several chunks.
    const counted = this.#socket.bytesRead - this.#before - this.#bytes;
    const frames = Math.max(counted, this.#parts * FRAME_BYTES);
    if (frames <= limits.frameBytes + this.#bytes / 16) return false;
    if (frames > this.#paid) {
      readTurns.spend(((frames - this.#paid) / FRAME_BYTES) * CHUNK_COST_BYTES);
      this.#paid = frames;
    }
    return true;
  }
}
