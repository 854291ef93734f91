/**
 * Turns for reading input that would take the event loop from everybody if it were read as fast as it comes. All connections
 * with such input share one rate. Between its turns a connection is paused, so that TCP slows its sender down instead of this
 * process. Owners take turns: the earliest that waits of each is read before the second of any, first that of the owner
 * of whom nothing was read to its end for longest. So who sends much delays itself most.
 */
import type { Socket } from "node:net";
import { ownerOf } from "./connection-shares.ts";
import { limits } from "./limits.ts";

/** Most that Node reads of a connection at once. */
const READ_BYTES = 64 * 1024;
const TICK_MS = 5;

/** A place in the line of its owner: behind those that have a lower number. */
export interface ReadPlace {
  readonly owner: string;
  readonly number: number;
  /** Whether it waited, and so keeps its owner known until it ends. */
  isOpen: boolean;
}

/** A connection, or the callback of a reader of another source. */
type Source = Socket | (() => void);

interface Waiting {
  readonly source: Source;
  readonly place: ReadPlace;
  /** The place is for this wait alone. */
  readonly isOnce: boolean;
}

interface Owner {
  /** What waits of it, by places. */
  readonly line: Waiting[];
  /** Its open places. */
  open: number;
}

const isIdle = ({ line, open }: Owner): boolean => open === 0 && line.length === 0;

export class ReadTurns {
  readonly #perMs: number;
  /** All that wait. */
  readonly #waiting = new Map<Source, Waiting>();
  /** Owners with open places or that wait, in the order in which they came or a place of theirs ended last. */
  readonly #owners = new Map<string, Owner>();
  #places = 0;
  #timer: NodeJS.Timeout | null = null;
  /** Bytes that may be read now, one tick's share at most; below zero after reads that turned out to cost more. */
  #left = 0;
  #filledAt = 0;

  constructor(bytesPerSecond: number) {
    this.#perMs = bytesPerSecond / 1000;
  }

  /**
   * A place for input that is read to the end before what came later, until `end`.
   * @param owner an organization's id; empty: nobody who is known.
   */
  place(owner: string): ReadPlace {
    return { owner, number: (this.#places += 1), isOpen: false };
  }

  /** Gives a place back: its owner's next one is behind all other owners. */
  end(place: ReadPlace): void {
    const owner = this.#owners.get(place.owner);
    if (!place.isOpen || owner === undefined) return;
    place.isOpen = false;
    owner.open -= 1;
    this.#owners.delete(place.owner);
    if (!isIdle(owner)) this.#owners.set(place.owner, owner);
  }

  /** Owners with open places or that wait. */
  get owners(): number {
    return this.#owners.size;
  }

  /**
   * Pauses the connection until its turn, in which it is read from once; not at all where nobody waits and the rate has room.
   * @param place absent: one for this wait alone, behind all others of the organization that has the connection, so that
   * organizations share the rate, and the connections of one its share.
   */
  wait(socket: Socket, place?: ReadPlace): void {
    if (this.#waiting.has(socket) || this.#mayReadNow()) return;
    this.#join({ source: socket, place: place ?? this.place(ownerOf(socket)), isOnce: place === undefined });
    socket.on("resume", pauseAgain);
    socket.pause();
  }

  /** Waits until 64 KiB more may be read from a source other than a connection. */
  async turn(place: ReadPlace): Promise<void> {
    if (this.#mayReadNow()) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#join({ source: resolve, place, isOnce: false });
    await promise;
  }

  /** Ends the connection's wait: it is read as usual again. */
  leave(socket: Socket): void {
    const waiting = this.#waiting.get(socket);
    if (waiting === undefined) return;
    this.#remove(waiting);
    socket.off("resume", pauseAgain);
    socket.resume();
  }

  isWaiting(socket: Socket): boolean {
    return this.#waiting.has(socket);
  }

  /** Counts what a read turned out to cost beyond its bytes, as bytes of the shared rate. */
  spend(bytes: number): void {
    this.#left -= bytes;
  }

  #mayReadNow(): boolean {
    if (this.#waiting.size > 0) return false;
    this.#fill();
    if (this.#left <= 0) return false;
    this.#left -= READ_BYTES;
    return true;
  }

  #join(waiting: Waiting): void {
    const { source, place } = waiting;
    this.#waiting.set(source, waiting);
    const owner = this.#owners.get(place.owner) ?? { line: [], open: 0 };
    this.#owners.set(place.owner, owner);
    if (!place.isOpen) owner.open += 1;
    place.isOpen = true;
    const { line } = owner;
    // Most come last.
    line.splice(line.findLastIndex((other) => other.place.number < place.number) + 1, 0, waiting);
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref();
  }

  #remove(waiting: Waiting): void {
    const { source, place, isOnce } = waiting;
    this.#waiting.delete(source);
    const owner = this.#owners.get(place.owner);
    if (owner === undefined) throw new Error("whoever waits has an owner");
    owner.line.splice(owner.line.indexOf(waiting), 1);
    if (isOnce) this.end(place);
    // The place was given back during the wait.
    else if (isIdle(owner)) this.#owners.delete(place.owner);
  }

  #fill(): void {
    const now = performance.now();
    this.#left = Math.min(TICK_MS * this.#perMs, this.#left + (now - this.#filledAt) * this.#perMs);
    this.#filledAt = now;
  }

  #tick(): void {
    this.#fill();
    while (this.#waiting.size > 0) {
      const firsts = Array.from(this.#owners.values()).flatMap(({ line: [first] }) => first ?? []);
      for (const first of firsts) {
        if (this.#left <= 0) return;
        this.#serve(first);
      }
    }
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  #serve(waiting: Waiting): void {
    const { source } = waiting;
    const isSocket = typeof source !== "function";
    if (!isSocket || !source.destroyed) this.#left -= READ_BYTES;
    if (isSocket) return this.leave(source);
    this.#remove(waiting);
    source();
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
 * place: of a hundred at once that cannot all be held, some come to their end, also if a hundred organizations send one each.
 */
export const largeBodyReads = new ReadTurns(limits.largeBodyBytesPerSecond);
