/**
 * Turns for answers that may take seconds of the database and many megabytes: reports, lists and exports. A few are made at a
 * time, at most one per organization, and organizations take turns, so that one that asks for many neither keeps the others
 * from the stores nor fills the memory (rule 7.7).
 */
import { Readable } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { FastifyReply, FastifyRequest, RouteGenericInterface } from "fastify";
import { REQUESTS_AT_ONCE } from "../billing/holds/free-budget.ts";
import type { Preflight } from "../billing/holds/preflight.ts";
import { ApiError } from "../lib/api-error.ts";
import { FairPlaces, type NoPlace, type PlaceLimits, type Release } from "../lib/fair-places.ts";
import { jsonInSlices } from "../lib/json-slices.ts";
import type { PieceReader } from "../lib/piece-reader.ts";
import { PieceRoom } from "../lib/piece-room.ts";
import { ANSWER_SLICE_MS } from "../lib/slices.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { metrics } from "../telemetry/metrics.ts";
import { clientGone } from "./body-errors.ts";
import { PartTurns } from "./part-turns.ts";
import { callerOf } from "./route.ts";
import { streamed } from "./streamed.ts";

/** Most answers that wait for their turn, of one organization and of all. */
type WaitingLimits = Pick<PlaceLimits, "waitingOfOne" | "waiting">;
/** Limits of the admin API. */
const ADMIN_WAITING: WaitingLimits = { waitingOfOne: 30, waiting: 1_000 };
/** Most lists of files and batches that wait, and apart from those of models; half of them may be of one organization. */
const LISTS_WAITING = 10_000;
/** Limits of such lists: as many of one organization as free endpoints let through at once. */
export const listWaiting = (preflight: Pick<Preflight, "freeAtOnce"> | undefined): WaitingLimits => ({
  waitingOfOne: (id) => Math.min(preflight?.freeAtOnce(id) ?? REQUESTS_AT_ONCE, LISTS_WAITING / 2),
  waiting: LISTS_WAITING,
});
/** Most exports of one organization at a time: each holds what it has read and its client has not taken yet. */
const MOST_EXPORTS = 4;
/**
 * Answers made at a time, over all organizations: the longest take a hundred megabytes until they are written. With fewer than
 * `ENOUGH_CONNECTIONS` to the database it is one.
 */
const AT_ONCE = 2;
const ENOUGH_CONNECTIONS = 5 * AT_ONCE;
/**
 * Longest wait for an answer, for its turn and for what is read: while a store is frozen each reading before it takes as long as
 * the store is given, so that the waits would add up. Less than what clients and proxies wait for.
 */
const READ_WITHIN_MS = 30_000;
/** A part whose read fails after so long was kept up by its store; a connection that breaks fails at once. */
const SLOW_MS = 2_000;
/** Bytes up to which an answer needs no room in the body budget; a page of usual length stays below. */
const SHORT_BYTES = 64 * 1024;

/** What answers in turns may take of the process: connections to the database, and how many are made at a time. */
export interface ReadingShare {
  readonly connections: FairPlaces;
  /** Answers that one `AnswerTurns` makes at a time. */
  readonly atOnce: number;
}

/**
 * Half of the connections, at least one: each answer may hold one for seconds, and the others are for requests that look up a
 * key or are charged. The wait has no limit, as few answers come this far.
 */
export function readingWith(connections: number): ReadingShare {
  const places = Math.max(1, Math.floor(connections / 2));
  return {
    connections: new FairPlaces({ places, waitingOfOne: Infinity, waiting: Infinity }),
    atOnce: connections < ENOUGH_CONNECTIONS ? 1 : AT_ONCE,
  };
}

/** Of answers that are made of what this process holds: nothing is waited for, so that one at a time is as fast. */
export const withoutReading = (): ReadingShare => ({
  connections: new FairPlaces({ places: Infinity, waitingOfOne: Infinity, waiting: Infinity }),
  atOnce: 1,
});

export class AnswerTurns {
  readonly #answers: FairPlaces;
  /** Turns for pages of exports: an export that has begun is not refused a turn. */
  readonly #pages: PartTurns;
  readonly #connections: FairPlaces;
  readonly #withinMs: number;
  /** Turns for pieces of downloads. */
  readonly #pieces: PartTurns;
  readonly #room = new PieceRoom();
  /** Exports that are being sent, by organization. */
  readonly #exports = new Map<string, number>();

  /** @param reading one for all of the process that read the database; `withoutReading` for the others */
  constructor(
    { connections, atOnce }: ReadingShare,
    waiting = ADMIN_WAITING,
    withinMs: number = READ_WITHIN_MS,
    slowMs: number = SLOW_MS,
  ) {
    this.#connections = connections;
    this.#withinMs = withinMs;
    this.#answers = new FairPlaces({ places: atOnce, placesOfOne: 1, ...waiting });
    this.#pages = new PartTurns({ places: 1, connections, taken, slowMs });
    this.#pieces = new PartTurns({ places: atOnce, connections, taken, slowMs });
  }

  /**
   * Returns a handler that answers with the JSON of what `make` returns, when it is the organization's turn; 503 when that takes
   * too long; `there` is aborted then, and when the client leaves. The answer counts in the body budget until it is sent, and a long one needs room there (rule 7.2).
   */
  json<Route extends RouteGenericInterface>(
    make: (request: FastifyRequest<Route>, there: AbortSignal) => object | Promise<object>,
  ) {
    return async (request: FastifyRequest<Route>, reply: FastifyReply<Route>): Promise<FastifyReply> => {
      const gone = new AbortController();
      const inTime = bound(gone, this.#withinMs);
      const there = whileThere(reply, gone);
      const release = taken(await this.#answers.take(organizationOf(request), there));
      // Hundreds may be let through at once: the event loop has a turn between two of them.
      const reading = nextTurn().then(() =>
        this.#read(organizationOf(request), there, () => make(request, there)),
      );
      try {
        const made = await unlessAborted(() => reading, there);
        inTime();
        const { pieces, bytes } = await written(made, request.bodyLease);
        reply.type("application/json; charset=utf-8").header("content-length", bytes);
        const [only] = pieces;
        return (reply as FastifyReply).send(
          pieces.length === 1 ? only : Readable.from(handedOver(pieces), { objectMode: false }),
        );
      } finally {
        // What is still being read, for nobody, keeps its place.
        reading.then(release, release);
      }
    };
  }

  /**
   * Reads an answer that is sent as it is read, each part when it is the organization's turn. @throws ApiError 429 when the
   * organization has `MOST_EXPORTS` already; ClientGone.
   */
  parts(request: FastifyRequest, reply: FastifyReply): <Part>(read: () => Promise<Part>) => Promise<Part> {
    const organizationId = organizationOf(request);
    const gone = new AbortController();
    whileThere(reply, gone).throwIfAborted();
    const others = this.#exports.get(organizationId) ?? 0;
    if (others >= MOST_EXPORTS) throw tooMany("exports");
    this.#exports.set(organizationId, others + 1);
    reply.raw.once("close", () => this.#ended(organizationId));
    return (read) => this.#pages.run(organizationId, gone, read);
  }

  /**
   * Returns the body of a download. `contents` reads each piece from the database when it is the organization's turn, and as
   * large as there is room for what clients have not taken yet.
   */
  download(
    request: FastifyRequest,
    reply: FastifyReply,
    contents: (reader: PieceReader) => AsyncIterable<Buffer>,
  ): Readable {
    const organizationId = organizationOf(request);
    const gone = new AbortController();
    whileThere(reply, gone);
    const piece = this.#room.open(organizationId);
    reply.raw.once("close", piece.release);
    return streamed(request, reply, () =>
      contents({
        most: piece.next,
        inTurn: (read) => this.#pieces.run(organizationId, gone, read),
      }),
    );
  }

  async #read<Value>(
    organizationId: string,
    there: AbortSignal,
    read: () => Value | Promise<Value>,
  ): Promise<Value> {
    const release = taken(await this.#connections.take(organizationId, there));
    try {
      return await read();
    } finally {
      release();
    }
  }

  #ended(organizationId: string): void {
    const left = (this.#exports.get(organizationId) ?? 1) - 1;
    if (left > 0) this.#exports.set(organizationId, left);
    else this.#exports.delete(organizationId);
  }
}

/** Writes JSON and counts each piece as it is made, so that an answer without room stops early. @throws ApiError 429 or 503 */
async function written(
  made: object,
  lease: FastifyRequest["bodyLease"],
): Promise<{ readonly pieces: Buffer[]; readonly bytes: number }> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of jsonInSlices(made, ANSWER_SLICE_MS)) {
    bytes += piece.length;
    if (bytes > SHORT_BYTES) lease.take(piece.length);
    else lease.count(piece.length);
    pieces.push(piece);
  }
  return { pieces, bytes };
}

/** Keeps no piece that was sent. */
function* handedOver(pieces: Buffer[]): Generator<Buffer> {
  for (let piece = pieces.shift(); piece !== undefined; piece = pieces.shift()) yield piece;
}

const organizationOf = (request: Pick<FastifyRequest, "caller" | "routeOptions">): string =>
  callerOf(request as FastifyRequest).organizationId;

/** Aborts `gone` with 503 after `ms`, unless it was before. @returns what to call when the answer is made: its client may be slow. */
function bound(gone: AbortController, ms: number): () => void {
  const timer = setTimeout(() => gone.abort(tooLate()), ms);
  const end = () => clearTimeout(timer);
  gone.signal.addEventListener("abort", end, { once: true });
  return end;
}

/** Aborts `gone` when the client has left, or its answer is out. */
function whileThere({ raw }: Pick<FastifyReply, "raw">, gone = new AbortController()): AbortSignal {
  // An answer that is closed already emits no event any more.
  if (raw.closed) gone.abort(clientGone());
  else raw.once("close", () => gone.abort(clientGone()));
  return gone.signal;
}

function tooLate(): ApiError {
  metrics.refused.inc({ reason: "reports" });
  return new ApiError("unavailable", "This cannot be read in time right now. Try again in a moment.", {
    retryAfterSeconds: 1,
  });
}

function tooMany(what: string): ApiError {
  metrics.refused.inc({ reason: "reports" });
  return new ApiError("rate_limited", `Too many ${what} of this organization are being read.`, {
    retryAfterSeconds: 1,
  });
}

/** @throws ApiError 429, 503 where too many wait already. */
function taken(place: Release | NoPlace): Release {
  if (typeof place !== "string") return place;
  if (place === "busy_owner") throw tooMany("reports and lists");
  metrics.refused.inc({ reason: "reports" });
  throw new ApiError("unavailable", "Too many reports and lists are being read. Try again in a moment.", {
    retryAfterSeconds: 1,
  });
}
